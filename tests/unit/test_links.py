"""Every relative link of every page leads to a file, and to a heading if it names one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Inline links and images; the text of a link may hold code and one pair of brackets.
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_BLOCK = re.compile(r"^( *)```.*?^\1```\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")


def _pages() -> list[Path]:
    folders = ("docs", "examples", "src", "tests")
    found = [
        *ROOT.glob("*.md"),
        *(page for each in folders for page in ROOT.glob(f"{each}/**/*.md")),
    ]
    return sorted(found)


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", _BLOCK.sub("", text))


def anchors_of(text: str) -> set[str]:
    """The anchors that a page has, as GitHub and its likes make them from headings."""
    found: dict[str, int] = {}
    anchors = set()
    for line in re.sub(r"^( *)```.*?^\1```\s*$", "", text, flags=re.MULTILINE | re.DOTALL).split(
        "\n"
    ):
        heading = _HEADING.match(line)
        if not heading:
            continue
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2]).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = found.get(slug, 0)
        anchors.add(slug if count == 0 else f"{slug}-{count}")
        found[slug] = count + 1
    return anchors


def broken_links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_without_code(page.read_text())):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue  # another host: never asked from a test
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target.read_text()):
            yield f"{link}: the page has no such heading"


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# What `verify --all` compares\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "a.md"
    page.write_text(
        "# Top\n[ok](b.md#what-verify---all-compares) [ok](#top) [ok](b.md#twice-1)"
        " [no](b.md#what) [no](c.md) [`no`](#bottom) `[code](d.md)` [far](https://example.com/x)\n"
    )
    assert list(broken_links(page)) == [
        "b.md#what: the page has no such heading",
        "c.md: there is no such file",
        "#bottom: the page has no such heading",
    ]


def test_the_index_names_every_page_once() -> None:
    index = ROOT / "docs" / "README.md"
    links = [link.partition("#")[0] for link in _LINK.findall(_without_code(index.read_text()))]
    named = [link for link in links if "/" not in link.removeprefix("tutorials/") and link]
    pages = [path for path in _pages() if path.parts[len(ROOT.parts)] == "docs" and path != index]
    expected = {
        str(path.relative_to(ROOT / "docs"))
        for path in pages
        if path.parent.name != "decisions"  # listed as one folder
    }
    assert sorted(named) == sorted(expected)
    assert "decisions/" in links
