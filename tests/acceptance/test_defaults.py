"""What a contract leaves out: the table's defaults, and who asks for what, on record."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from actum import ContractInvalid, Result, Runtime

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def rt() -> Iterator[Runtime]:
    with Runtime.temporary(pool=False) as runtime:
        yield runtime


def predicate(rt: Runtime, result: Result) -> dict[str, Any]:
    envelope = rt.services.receipts.find(result.receipt_id).envelope
    statement: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))
    found: dict[str, Any] = statement["predicate"]
    return found


@pytest.mark.req("000-31", "000-34", "000-37", "000-40")
def test_limits_that_are_left_out_take_the_tables_defaults(rt: Runtime) -> None:
    result = rt.exec("shell", stdin="true").check()
    requested = {row.limit: row.requested for row in result.enforcement}
    assert requested["timeout_ms"] == "30000"
    assert requested["memory_mb"] == "512"
    assert requested["cpu_cores"] == "1"
    assert requested["max_children"] == "10"


def filled(rt: Runtime, result: Result) -> list[str]:
    """Fields that were filled in, as result, --json document and evidence record say."""
    record = rt.evidence(result.evidence_ref).record
    assert record["filled"] == result.document()["filled"] == list(result.filled)
    return list(result.filled)


@pytest.mark.req("000-27")
def test_who_asks_is_on_record_and_cannot_be_nobody(rt: Runtime) -> None:
    named = rt.exec("shell", stdin="true", requested_by="agent:planner").check()
    assert predicate(rt, named)["requested_by"] == "agent:planner"
    unnamed = rt.exec("shell", stdin="true").check()
    assert predicate(rt, unnamed)["requested_by"] == f"user:{rt.settings.login}"
    assert "metadata.requested_by" in filled(rt, unnamed)
    assert "metadata.requested_by" not in filled(rt, named)
    assert rt.evidence(named.evidence_ref).record["requested_by"] == "agent:planner"
    with pytest.raises(ContractInvalid, match=r"metadata\.requested_by"):
        rt.exec("shell", stdin="true", requested_by="")


@pytest.mark.req("000-29")
def test_there_is_always_a_purpose(rt: Runtime) -> None:
    def recorded(result: Result) -> tuple[str, str]:
        signed: str = predicate(rt, result)["purpose_sha256"]
        return rt.evidence(result.evidence_ref).record["purpose"], signed

    def digest(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    for text in ("count lines", "count words"):
        named = rt.exec("shell", stdin="true", purpose=text).check()
        assert recorded(named) == (text, digest(text))
        assert "metadata.purpose" not in filled(rt, named)
    unnamed = rt.exec("shell", stdin="true").check()
    assert recorded(unnamed) == ("actum exec TL-010", digest("actum exec TL-010"))
    assert "metadata.purpose" in filled(rt, unnamed)
    with pytest.raises(ContractInvalid, match=r"metadata\.purpose"):
        rt.exec("shell", stdin="true", purpose="")


@pytest.mark.req("000-5", "000-95")
def test_the_adapters_executable_is_the_program_that_runs(rt: Runtime) -> None:
    result = rt.exec("python", stdin="import sys; print(sys.executable)").check()
    assert result.result is not None
    path = predicate(rt, result)["executable"]["path"]
    assert path.startswith("/usr/bin/python3")
    assert result.result.stdout.startswith("/usr/bin/python3")


def input_digest(rt: Runtime, *arguments: str, **words: Any) -> str:
    """As the audit record and the receipt of one execution have it."""
    result = rt.exec("shell", *arguments, **{"stdin": "true", **words}).check()
    signed = str(predicate(rt, result)["input_digest"])
    rows = rt.database.rows("SELECT record FROM audit ORDER BY seq")
    records = [json.loads(row[0]) for row in rows]
    logged = {
        each["input_digest"]
        for each in records
        if each.get("execution_id") == result.execution_id and each["kind"] == "FINAL"
    }
    assert logged == {signed}
    return signed


#: One change of each input: the words of the changed call.
OTHER_INPUTS: dict[str, dict[str, Any]] = {
    "arguments": {"arguments": ("b",)},
    "their order": {"arguments": ("a2", "a")},
    "environment": {"env": {"LANG": "C.UTF-8"}},
    "a name in the environment": {"env": {"LC_ALL": "C"}},
    "stdin": {"stdin": "true "},
    "a file more": {"files": ["in.txt", "same.txt", "other.txt"]},
    "another name for the same content": {"files": ["in.txt", "twin.txt"]},
    "other content": {"files": ["in.txt", "changed.txt"]},
}


@pytest.mark.req("000-163")
@pytest.mark.parametrize("change", OTHER_INPUTS)
def test_a_change_of_any_input_gives_another_input_digest(rt: Runtime, change: str) -> None:
    for name, content in (("in", "a"), ("same", "s"), ("other", "o"), ("twin", "s")):
        (rt.settings.root / f"{name}.txt").write_text(content)
    (rt.settings.root / "changed.txt").write_text("c")
    usual: dict[str, Any] = {
        "arguments": ("a", "a2"),
        "env": {"LANG": "C"},
        "files": ["in.txt", "same.txt"],
    }

    def digest(words: dict[str, Any]) -> str:
        words = dict(words)
        return input_digest(rt, *words.pop("arguments"), **words)

    assert digest(usual) == digest(usual)
    assert digest(usual) != digest({**usual, **OTHER_INPUTS[change]})


@pytest.mark.req("000-163")
def test_the_content_of_a_file_is_part_of_the_input_digest(rt: Runtime) -> None:
    def digest(content: str) -> str:
        (rt.settings.root / "in.txt").write_text(content)
        return input_digest(rt, files=["in.txt"])

    assert digest("a") == digest("a")
    assert digest("a") != digest("b")


@pytest.mark.req("000-163")
def test_another_process_in_another_project_computes_the_same_input_digest(rt: Runtime) -> None:
    program = (
        "import base64, json, pathlib\n"
        "from actum import Runtime\n"
        "with Runtime.temporary(pool=False) as rt:\n"
        "    (rt.settings.root / 'in.txt').write_text('a')\n"
        "    result = rt.exec('shell', 'x', stdin='true', env={'LANG': 'C'}, files=['in.txt'])\n"
        "    envelope = json.loads(pathlib.Path(result.check().receipt_path).read_text())\n"
        "    print(json.loads(base64.b64decode(envelope['payload']))['predicate']['input_digest'])"
    )
    (rt.settings.root / "in.txt").write_text("a")
    ours = input_digest(rt, "x", env={"LANG": "C"}, files=["in.txt"])
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        answer = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout.strip() == ours


@pytest.mark.req("000-165")
def test_the_order_of_input_files_is_defined_and_does_not_matter(rt: Runtime) -> None:
    for name in ("b.txt", "a.txt"):
        (rt.settings.root / name).write_text(name)
    one = input_digest(rt, files=["a.txt", "b.txt"])
    assert input_digest(rt, files=["b.txt", "a.txt"]) == one
    # The control: names and contents belong together.
    (rt.settings.root / "a.txt").write_text("b.txt")
    (rt.settings.root / "b.txt").write_text("a.txt")
    assert input_digest(rt, files=["a.txt", "b.txt"]) != one
