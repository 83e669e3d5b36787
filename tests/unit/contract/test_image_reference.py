"""An image is named by content, never by a tag."""

from __future__ import annotations

import pytest

from actum.contract.image_reference import HOST, ImageReference, parse_reference

DIGEST = "sha256:" + "0a" * 32


def test_host_is_no_image() -> None:
    assert parse_reference(HOST) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (DIGEST, ""),
        (f"debian@{DIGEST}", "debian"),
        (f"example.com:5000/team/tool_a.b@{DIGEST}", "example.com:5000/team/tool_a.b"),
        (f"localhost/x@{DIGEST}", "localhost/x"),
    ],
)
def test_a_reference_by_digest_is_read(text: str, name: str) -> None:
    assert parse_reference(text) == ImageReference(name=name, digest=DIGEST)
    assert str(parse_reference(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "debian",
        "debian:bookworm",
        "debian:latest",
        f"debian:bookworm@{DIGEST}",
        f"Debian@{DIGEST}",
        f"../x@{DIGEST}",
        f"/x@{DIGEST}",
        f"x@{DIGEST[:-1]}",
        f"x@{DIGEST}0",
        DIGEST.upper(),
        "sha256:",
        "sha512:" + "0" * 128,
        f" {DIGEST}",
        f"{DIGEST}\n",
        "",
        "HOST",
        f"{'a' * 500}@{DIGEST}",
    ],
)
def test_everything_else_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(ValueError, match="a tag can be moved"):
        parse_reference(text)
