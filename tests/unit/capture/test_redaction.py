"""What was given to a tool is taken out of what it says, however it is cut and spelled."""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import json
import random
import tracemalloc
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actum.capture.model import Capture, Collected, Connection, Denial, Exited, NotCollected
from actum.capture.redaction import Redaction, marker
from actum.capture.streams import StreamKeeper
from actum.capture.suspicions import suspected

SECRET = b"s3cr3t/with+odd\"chars'&<%>"
NAME = "TOKEN"
MARK = marker(NAME)


def spellings() -> dict[str, bytes]:
    text = SECRET.decode()
    return {
        "plain": SECRET,
        "base64": base64.b64encode(SECRET),
        "base64 after one byte": base64.b64encode(b"x" + SECRET + b"y"),
        "base64 after two bytes": base64.b64encode(b"xx" + SECRET + b"yyy"),
        "urlsafe": base64.urlsafe_b64encode(b"ab" + SECRET),
        "hex": SECRET.hex().encode(),
        "HEX": SECRET.hex().upper().encode(),
        "url": urllib.parse.quote(text, safe="").encode(),
        "url, slash kept": urllib.parse.quote(text).encode(),
        "url, small": urllib.parse.quote(text, safe="").lower().encode(),
        "form": urllib.parse.quote_plus(text).encode(),
        "json": json.dumps(text).encode(),
        "json, slash": json.dumps(text).replace("/", "\\/").encode(),
        "html": html.escape(text).encode(),
        "python": repr(SECRET).encode(),
        "shell": text.replace("'", "'\\''").encode(),
        "utf-16": text.encode("utf-16-le"),
        "every byte": "".join(f"%{byte:02X}" for byte in SECRET).encode(),
    }


def redacted(pieces: list[bytes], values: dict[str, bytes] | None = None) -> bytes:
    stream = Redaction(values or {NAME: SECRET}).stream()
    return b"".join(stream.feed(piece) for piece in pieces) + stream.rest()


@pytest.mark.parametrize("spelling", spellings())
@pytest.mark.parametrize("cut", ["whole", "bytes", "halves"])
def test_every_spelling_is_found_however_it_is_cut(spelling: str, cut: str) -> None:
    text = spellings()[spelling]
    content = b"before " + text + b" after\n"
    middle = 7 + len(text) // 2
    pieces = {
        "whole": [content],
        "bytes": [bytes([byte]) for byte in content],
        "halves": [content[:middle], content[middle:]],
    }[cut]
    out = redacted(pieces)
    assert MARK in out
    assert out.startswith(b"before ")
    assert out.endswith(b" after\n")
    # Nothing of its middle is left, in whatever spelling.
    third = len(text) // 3
    assert text[third : 2 * third] not in out


@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("after", range(3))
def test_base64_hides_the_characters_that_it_shares_with_its_neighbours(
    before: int, after: int
) -> None:
    """Two secrets that differ in their first or last bits only cannot be told apart."""
    outs = set()
    for value in (b"\x00" + SECRET + b"\x00", b"\xff" + SECRET + b"\xff"):
        text = base64.b64encode(b"L" * before + value + b"R" * after)
        outs.add(redacted([b"<" + text + b">"], {NAME: value}))
    assert len({out.count(MARK) for out in outs}) == 1
    if before == 0:
        assert all(out.startswith(b"<" + MARK) for out in outs)
    assert len(outs) == 1, outs


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60),
    st.binary(max_size=60),
    st.lists(st.integers(0, 200), max_size=6),
    st.sampled_from([b"aaaa", b"abab", b"abcabcab", b"hunter2", bytes(range(4))]),
)
def test_no_cut_lets_a_secret_through(
    left: bytes, right: bytes, cuts: list[int], secret: bytes
) -> None:
    content = left + secret + right + secret[:-1] + secret
    places = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    pieces = [content[a:b] for a, b in itertools.pairwise(places)]
    out = redacted(pieces, {NAME: secret})
    assert secret not in out.replace(MARK, b"\x00\x00MARK\x00\x00")
    # However it is cut, the same comes out.
    assert out == redacted([content], {NAME: secret})


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_what_holds_no_secret_is_not_changed(content: bytes, cuts: list[int]) -> None:
    value = b"never in here: \xde\xad\xbe\xef 0815"
    places = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    pieces = [content[a:b] for a, b in itertools.pairwise(places)]
    assert redacted(pieces, {NAME: value}) == content


def test_a_secret_inside_another_and_two_that_overlap() -> None:
    values = {"A": b"abcdef", "B": b"abcdefghij", "C": b"hijklm"}
    out = redacted([b"xabcde", b"fghi", b"jklmx abcdef."], values)
    assert out == b"x" + marker("A") + b"x " + marker("A") + b"."


def test_a_secret_that_repeats_itself_for_ever_is_one_marker_and_little_memory() -> None:
    stream = Redaction({NAME: b"aaaa"}).stream()
    out = b"".join(stream.feed(b"a" * 10_000) for _ in range(50)) + stream.rest()
    assert out == MARK


def test_lines_of_a_long_secret_and_broken_encodings_are_found() -> None:
    key = b"-----BEGIN KEY-----\n" + b"\n".join(
        base64.b64encode(random.Random(n).randbytes(48)) for n in range(8)
    )
    redaction = Redaction({NAME: key})
    lines = key.split(b"\n")
    shown = redaction.whole(b"\n".join(b"    " + line for line in lines))
    assert not any(line in shown for line in lines)
    wrapped = base64.encodebytes(b"head" + key)
    out = redaction.whole(wrapped)
    # Characters at the very edges of a line may stay; no run that says anything does.
    assert all(len(run) < 24 for run in out.replace(MARK, b"\n").split(b"\n"))
    dumped = b"\n".join(
        key.hex().encode()[start : start + 60] for start in range(0, 2 * len(key), 60)
    )
    assert all(len(run) < 24 for run in redaction.whole(dumped).replace(MARK, b"\n").split())


@pytest.mark.parametrize("encoded", ["base64", "openssl", "xxd", "xxd -u"])
@pytest.mark.parametrize("size", [4_097, 32_768])
def test_a_long_secret_is_found_on_the_lines_that_common_programs_write(
    encoded: str, size: int
) -> None:
    value = random.Random(size).randbytes(size)
    width = {"base64": 76, "openssl": 64, "xxd": 60, "xxd -u": 60}[encoded]
    text = value.hex().encode() if "xxd" in encoded else base64.b64encode(value)
    text = text.upper() if encoded == "xxd -u" else text
    lines = [text[start : start + width] for start in range(0, len(text), width)]
    stream = Redaction({NAME: value}).stream()
    out = b"".join(stream.feed(line + b"\n") for line in lines) + stream.rest()
    shown = [line for line in out.split(b"\n") if line not in (b"", MARK)]
    assert len(b"".join(shown)) < 24


#: As the encoders of these write `UNUSUAL`; none of them escapes as Python does.
UNUSUAL = 'pa!ss/w<rd>&"it\'s"+=é`x'
ELSEWHERE = {
    "JavaScript's encodeURIComponent": "pa!ss%2Fw%3Crd%3E%26%22it's%22%2B%3D%C3%A9%60x",
    "JavaScript's encodeURI": "pa!ss/w%3Crd%3E&%22it's%22+=%C3%A9%60x",
    "Go's url.PathEscape": "pa%21ss%2Fw%3Crd%3E&%22it%27s%22+=%C3%A9%60x",
    "Go's JSON": r"""pa!ss/w\u003crd\u003e\u0026\"it's\"+=é`x""",
    "Gson": r"""pa!ss/w\u003crd\u003e\u0026\"it\u0027s\"+\u003dé`x""",
    ".NET's JSON": r"pa!ss/w\u003Crd\u003E\u0026\u0022it\u0027s\u0022\u002B=\u00E9\u0060x",
    "Go's and Jinja's HTML": "pa!ss/w&lt;rd&gt;&amp;&#34;it&#39;s&#34;+=é`x",
    "PHP's HTML": "pa!ss/w&lt;rd&gt;&amp;&quot;it&#039;s&quot;+=é`x",
}


@pytest.mark.parametrize("encoder", ELSEWHERE)
def test_what_encoders_of_other_languages_write_is_found(encoder: str) -> None:
    pieces = [bytes([byte]) for byte in ELSEWHERE[encoder].encode()]
    assert redacted(pieces, {NAME: UNUSUAL.encode()}) == MARK


def test_what_cannot_be_the_beginning_of_a_secret_is_shown_at_once() -> None:
    stream = Redaction({NAME: b"hunter2-hunter2"}).stream()
    assert stream.feed(b"> ready\n") == b"> ready\n"
    assert stream.feed(b"name: ") == b"name: "
    assert stream.feed(b"say hunt") == b"say "
    assert stream.feed(b"ing\n") == b"hunting\n"


def test_kept_counted_digested_and_shown_is_what_is_left() -> None:
    keeper = StreamKeeper(1_000, Redaction({NAME: SECRET}).stream())
    shown = bytes(keeper.feed(b"a " + SECRET[:9])) + bytes(keeper.feed(SECRET[9:] + b" b"))
    shown += keeper.rest()
    stream = keeper.finish()
    left = b"a " + MARK + b" b"
    assert shown == stream.kept == left
    assert (stream.total_bytes, stream.sha256) == (len(left), hashlib.sha256(left).hexdigest())
    assert not stream.truncated


def test_memory_stays_flat() -> None:
    keeper = StreamKeeper(1_000, Redaction({NAME: SECRET}).stream())
    chunk = (b"noise " * 11_000)[:65_536]
    keeper.feed(chunk)
    tracemalloc.start()
    for _ in range(200):
        keeper.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_files_names_denials_and_connections_too() -> None:
    redaction = Redaction({NAME: b"MixedCaseSecret"})
    keeper = StreamKeeper(10)
    nothing = keeper.finish()
    raw = b"x=MixedCaseSecret"
    capture = Capture(
        ending=Exited(0),
        stdout=nothing,
        stderr=nothing,
        duration_ms=1,
        collected=(
            Collected(
                name="MixedCaseSecret.txt",
                path="d/MixedCaseSecret.txt",
                kind="artifact",
                content=raw,
                sha256=hashlib.sha256(raw).hexdigest(),
                blake3="",
            ),
        ),
        not_collected=(NotCollected(path="p-MixedCaseSecret", kind="artifact", reason="FIFO"),),
        denials=(Denial(kind="network", target="mixedcasesecret.example:443", time_ms=1),),
        connections=(Connection(host="mixedcasesecret.example", port=443, address="", time_ms=1),),
    )
    clean = redaction.capture(capture)
    assert "mixedcasesecret" not in repr(clean).lower()
    assert clean.collected[0].content == b"x=" + MARK
    assert clean.collected[0].sha256 == hashlib.sha256(b"x=" + MARK).hexdigest()
    assert redaction.found[NAME] == 6


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("api_key", "API_KEY=abcdefghijklmnop1234"),
        ("password", '"password": "correcthorse"'),
        ("secret", "client_secret: abcdefghij0123456789"),
        ("token", "Authorization: Bearer abcdefghijklmnopqrstuvwx"),
        ("private_key", "-----BEGIN RSA PRIVATE KEY-----"),
        ("github_personal", "ghp_" + "a1" * 18),
        ("github_oauth", "gho_" + "b2" * 18),
        ("gitlab", "glpat-abcdefghij0123456789"),
        ("sk_key", "sk-abcdefghijklmnopqrstuvwx"),
        ("json_web_token", "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.dBjftJeZ4CVP-mB92K"),
    ],
)
def test_what_looks_like_a_secret_is_named_by_kind(kind: str, text: str) -> None:
    assert kind in suspected(f"log line\n{text}\n".encode())
    assert suspected(b"log line without anything of that sort, token or not") == ()
