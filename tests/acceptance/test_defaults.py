"""What a contract leaves out: the table's defaults, and who asks for what, on record."""

from __future__ import annotations

import base64
import json
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
    envelope = rt.rooms.receipts.find(result.receipt_id).envelope
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


@pytest.mark.req("000-27")
def test_who_asks_is_on_record_and_cannot_be_nobody(rt: Runtime) -> None:
    named = rt.exec("shell", stdin="true", requested_by="agent:planner").check()
    assert "agent:planner" in json.dumps(predicate(rt, named))
    unnamed = rt.exec("shell", stdin="true").check()
    assert f"user:{rt.settings.login}" in json.dumps(predicate(rt, unnamed))
    with pytest.raises(ContractInvalid, match=r"metadata\.requested_by"):
        rt.exec("shell", stdin="true", requested_by="")


@pytest.mark.req("000-29")
def test_there_is_always_a_purpose(rt: Runtime) -> None:
    contract = rt.contract({"tool_id": "TL-010", "inputs": {"command": "sh"}})
    assert contract.metadata.purpose == "actum exec TL-010"
    one = rt.exec("shell", stdin="true", purpose="count lines").check()
    other = rt.exec("shell", stdin="true", purpose="count words").check()
    assert predicate(rt, one)["contract"] != predicate(rt, other)["contract"]
    with pytest.raises(ContractInvalid, match=r"metadata\.purpose"):
        rt.exec("shell", stdin="true", purpose="")


@pytest.mark.req("000-95")
def test_the_adapters_executable_is_the_program_that_runs(rt: Runtime) -> None:
    result = rt.exec("python", stdin="import sys; print(sys.executable)").check()
    assert result.result is not None
    path = predicate(rt, result)["executable"]["path"]
    assert path.startswith("/usr/bin/python3")
    assert result.result.stdout.startswith("/usr/bin/python3")


@pytest.mark.req("000-163")
def test_equal_inputs_give_equal_input_digests(rt: Runtime) -> None:
    def digest(stdin: str, content: str) -> str:
        (rt.settings.root / "in.txt").write_text(content)
        result = rt.exec("shell", stdin=stdin, files=["in.txt"]).check()
        records = rt.database.rows("SELECT record FROM audit ORDER BY seq DESC LIMIT 1")
        record = json.loads(records[0][0])
        assert record["execution_id"] == result.execution_id
        return str(record["input_digest"])

    first = digest("true", "a")
    assert digest("true", "a") == first
    assert digest("true", "b") != first
    assert digest("true ", "a") != first
