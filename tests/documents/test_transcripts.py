"""The comparison that the examples rest on: it notices what a page has wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from .blocks import blocks_of
from .shell import Shell
from .transcripts import Names, Step, steps_of

ONE = "11111111-2222-4333-8444-555555555555"
TWO = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"


def test_a_transcript_is_commands_and_their_output() -> None:
    text = "$ printf 'a\\nb\\n' | \\\n    sort\na\nb\n$ true\n$ cat <<END\nx\nEND\nx\n"
    assert list(steps_of(text)) == [
        Step(0, "printf 'a\\nb\\n' | \\\n    sort", ("a", "b")),
        Step(4, "true", ()),
        Step(5, "cat <<END\nx\nEND", ("x",)),
    ]


def test_a_shift_is_no_here_document() -> None:
    assert list(steps_of("$ echo $((1 << 2))\n4\n")) == [Step(0, "echo $((1 << 2))", ("4",))]


def test_text_before_the_first_command_is_an_error() -> None:
    with pytest.raises(AssertionError, match="begins with a command"):
        list(steps_of("a\n$ true\n"))


@pytest.mark.parametrize(
    ("line", "printed", "same"),
    [
        ("42", "42", True),
        ("42", "43", False),
        (
            "actum: SUCCEEDED · 101 ms · receipt e5dadba6-…",
            f"actum: SUCCEEDED · 3 ms · receipt {ONE}",
            True,
        ),
        (
            "actum: SUCCEEDED · 101 ms · receipt e5dadba6-…",
            f"actum: TOOL_ERROR · 3 ms · receipt {ONE}",
            False,
        ),
        ("Verified: 12 checks passed.", "Verified: 76 checks passed.", True),
        ("Verified: 12 checks passed.", "NOT verified: 76 checks passed.", False),
        ("until 2026-11-15T23:50:57.302Z.", "until 2027-01-02T03:04:05.678Z.", True),
        ("a   b", "a b", True),
        ("exit code 3", "exit code 4", False),
        ("begins with …", "begins with anything", True),
    ],
)
def test_only_what_differs_from_run_to_run_may_differ(line: str, printed: str, same: bool) -> None:
    assert (Names().missing((line,), printed) is None) is same


def test_lines_are_compared_in_order() -> None:
    assert Names().missing(("a", "b"), "a\nx\nb\n") is None
    assert Names().missing(("b", "a"), "a\nb\n") == "a"


def test_an_id_of_the_page_is_the_id_of_the_run_from_where_it_is_printed() -> None:
    names = Names()
    assert names.missing(("Request 0311dd7b-…: waits",), f"Request {ONE}: waits") is None
    assert names.real("approve 0311dd7b-c74b-4125-b495-f7516e671b7c") == f"approve {ONE}"
    assert names.real("approve 0311…") == f"approve {ONE}"
    assert names.real("approve 9999…") == "approve 9999…"
    assert names.missing(("0311dd7b-… approved",), f"{TWO} approved") == "0311dd7b-… approved"


def test_a_comment_that_belongs_to_no_block_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "p.md"
    page.write_text("<!-- not run: reason -->\n\nText.\n\n```\n$ true\n```\n")
    with pytest.raises(AssertionError, match="of no block"):
        list(blocks_of(page, "p.md"))
    page.write_text("<!-- not run: reason -->\n\n```\n$ true\n```\n")
    (block,) = blocks_of(page, "p.md")
    assert (block.remark, block.rest, block.is_transcript) == ("not run", "reason", True)


def test_a_shell_keeps_its_folder_and_reports_codes(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {"PATH": "/usr/bin:/bin"})
    try:
        assert shell.run("mkdir a && cd a; echo 'it'\\''s'; echo err >&2") == (0, "it's\nerr\n")
        assert shell.folder() == tmp_path / "a"
        assert shell.run("cat; false") == (1, "")
        assert shell.run("echo $?") == (0, "1\n")
        assert shell.run("sleep 600 &")[0] == 0
        assert shell.run("kill %1") == (0, "")
    finally:
        shell.close()
