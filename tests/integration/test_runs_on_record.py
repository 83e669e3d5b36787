"""One real run of each kind of promise: what is on record of it, and what is refused by default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actum import ContractInvalid, Outcome
from actum.contract.canonical import sha256_bytes
from common.made_tools import ANY_TEXT, MadeTools, cli_adapter, made_tools

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def made() -> Iterator[MadeTools]:
    with made_tools() as opened:
        opened.add("plain", [cli_adapter("ADP-plain")], environment=["LANG"])
        yield opened


@pytest.mark.req("000-186")
def test_the_evidence_of_a_run_has_command_output_and_exit_code(made: MadeTools) -> None:
    script = "printf '%5000s' x; echo oops >&2; exit 3"
    result = made.rt.exec("plain", "a b", stdin=script, env={"LANG": "C"})
    assert result.outcome is Outcome.TOOL_ERROR
    record = made.evidence(result)
    command = record["command"]
    assert command["argv"] == ["sh", "-s", "--", "a b"]
    assert command["executable"].endswith("sh")
    assert command["working_directory"] == str(made.root)
    assert "LANG" in command["environment"]
    assert command["stdin_bytes"] == len(script)
    assert record["exit_code"] == 3
    whole = b"%5000s" % b"x"
    assert record["output"]["stdout"] == {
        "summary": whole[:4096].decode(),
        "bytes": 5_000,
        "kept": 5_000,
        "truncated": False,
    }
    assert record["output"]["stderr"]["summary"] == "oops\n"
    assert record["full_output"] == {
        "session": result.session,
        "execution_id": result.execution_id,
        "stdout_sha256": sha256_bytes(whole),
        "stderr_sha256": sha256_bytes(b"oops\n"),
    }
    assert made.predicate(result)["evidence"]["evidence_id"] == record["evidence_id"]


@pytest.mark.req("000-176")
def test_the_limits_of_a_run_are_set_before_it_and_on_record(made: MadeTools) -> None:
    asked = {"sandbox.cpu_cores": 2, "sandbox.processes": {"max_children": 7}}
    result = made.rt.exec("plain", stdin="true", timeout="7s", memory="96M", set=asked).check()
    limits = {"timeout_ms": 7_000, "memory_mb": 96, "cpu_cores": 2, "max_children": 7}
    (line,) = (
        each
        for each in made.evidence(result)["checklists"]["pre_execution"]
        if each["item"] == "Sandbox limits set appropriately"
    )
    listed = ", ".join(f"{name} {value}" for name, value in limits.items())
    assert (line["verdict"], line["detail"]) == ("pass", listed)
    signed = made.predicate(result)
    recorded = signed["policy"]["document"]["limits"]
    assert {name: recorded[name] for name in limits} == limits
    enforced = {row["limit"]: row for row in signed["enforcement"]}
    assert {name: enforced[name]["requested"] for name in limits} == {
        name: str(value) for name, value in limits.items()
    }
    assert all(enforced[name]["enforced"] for name in limits)


@pytest.mark.req("000-176")
def test_limits_that_the_tool_lowers_are_on_record_as_they_are_in_force(made: MadeTools) -> None:
    ceilings = {"max_duration_sec": 5, "max_memory_mb": 96, "max_cpu_cores": 1}
    permissions = {"execution": {"runner": "local", **ceilings}}
    made.add("bounded", [cli_adapter("ADP-bounded")], permissions=permissions)
    asked = {"sandbox.cpu_cores": 2}
    result = made.rt.exec("bounded", stdin="true", timeout="9s", memory="256M", set=asked).check()
    limits = {"timeout_ms": 5_000, "memory_mb": 96, "cpu_cores": 1}
    (line,) = (
        each
        for each in made.evidence(result)["checklists"]["pre_execution"]
        if each["item"] == "Sandbox limits set appropriately"
    )
    listed = ", ".join(f"{name} {value}" for name, value in limits.items())
    assert line["verdict"] == "pass"
    assert line["detail"].startswith(f"{listed}, max_children ")
    signed = made.predicate(result)
    recorded = signed["policy"]["document"]["limits"]
    assert {name: recorded[name] for name in limits} == limits
    enforced = {row["limit"]: row["requested"] for row in signed["enforcement"]}
    assert {name: int(enforced[name]) for name in limits} == limits


@pytest.mark.req("000-112")
def test_output_transforms_are_applied_in_the_order_of_the_list(made: MadeTools) -> None:
    parse = {"type": "parse", "spec": "json"}
    outer, inner = ({"type": "extract", "spec": spec} for spec in ("$.a", "$.b"))
    shown = {"type": "format", "spec": "{first} then {second}"}
    for name, output in (("forth", [parse, outer, inner, shown]), ("back", [parse, inner, outer])):
        adapter = cli_adapter(f"ADP-{name}", transforms={"input": [], "output": output})
        made.add(name, [adapter])
    said = '{"a": {"b": {"first": 1, "second": 2}}, "b": {"a": 3}}'
    script = f"echo '{said}'"
    assert made.rt.exec("forth", stdin=script).check().output == "1 then 2"
    assert made.rt.exec("back", stdin=script).check().output == 3


@pytest.mark.req("000-110")
def test_input_transforms_are_applied_in_the_order_of_the_list(made: MadeTools) -> None:
    rename = {"type": "rename", "spec": {"word": "text"}}
    default = {"type": "default", "spec": {"text": "small"}}
    mapped = {"type": "map", "spec": {"text": {"small": "klein"}}}
    validate = {"type": "validate", "spec": {"properties": {"text": {"enum": ["klein", "x"]}}}}
    for name, steps in (
        ("first", [rename, default, mapped, validate]),
        ("late", [mapped, rename, default]),
    ):
        adapter = cli_adapter(
            f"ADP-{name}",
            "echo",
            base_args=[],
            arg_mapping={"text": "-{text}"},
            transforms={"input": steps, "output": []},
        )
        made.add(name, [adapter], parameters={"text": ANY_TEXT})

    def said(tool: str, **parameters: str) -> str:
        result = made.rt.exec(tool, parameters=parameters).check()
        assert result.result is not None
        return result.result.stdout

    assert (said("first"), said("first", word="small")) == ("-klein\n", "-klein\n")
    assert said("first", word="x") == "-x\n"
    assert said("late", word="small") == "-small\n"  # mapped before it had the name
    assert made.rt.exec("first", parameters={"word": "y"}).reason_codes == ("ARGS_INVALID",)


@pytest.mark.req("000-166")
def test_a_tool_with_a_network_is_refused_at_d2_and_runs_at_d1(made: MadeTools) -> None:
    hosts = ["service.example:443"]
    adapter = cli_adapter(
        "ADP-net", sandbox_override={"network": {"enabled": True, "allow": hosts}}
    )
    made.add(
        "net",
        [adapter],
        scope={
            "commands": ["sh"],
            "endpoints": [],
            "data_access": "read",
            "network": "on",
            "hosts": hosts,
            "filesystem": ["."],
        },
        permissions={"execution": {"runner": "local"}, "network": {"outbound": ["https"]}},
    )
    refused = made.rt.exec("net", stdin="touch ran", set={"determinism": "D2"})
    assert refused.reason_codes == ("DETERMINISM_UNSUPPORTED",)
    assert [each.field for each in refused.violations] == ["sandbox.network"]
    made.rt.exec("net", stdin="true", set={"determinism": "D1"}).check()  # the control
    offline = {"determinism": "D2", "sandbox.network.enabled": False}
    made.rt.exec("net", stdin="true", set=offline).check()


@pytest.mark.req("000-190")
def test_without_an_entry_of_the_allowlist_nothing_is_permitted(made: MadeTools) -> None:
    """Tool, argument and host: each is refused until an approved entry names it."""
    adapter = cli_adapter("ADP-listed", "echo", base_args=[])
    scope = {
        "commands": ["echo one"],
        "endpoints": [],
        "data_access": "read",
        "network": "off",
        "filesystem": ["."],
    }
    made.add("listed", [adapter], scope=scope, approved=False)
    assert made.rt.exec("listed", "one").reason_codes == ("TOOL_NOT_APPROVED",)
    made.approve("listed")
    made.rt.exec("listed", "one").check()
    assert made.rt.exec("listed", "two").reason_codes == ("IV_01",)
    reached = made.rt.exec("listed", "one", allow_hosts=["service.example:443"])
    assert reached.reason_codes == ("SCOPE_EXCEEDED",)
    written = made.rt.exec("listed", "one", set={"sandbox.filesystem.write": ["."]})
    assert written.outcome is Outcome.REJECTED
    # The same with entries: approved again, it runs.
    wider = {**scope, "commands": ["echo"], "network": "on", "hosts": ["service.example:443"]}
    permitted = {"execution": {"runner": "local"}, "network": {"outbound": ["https"]}}
    made.add("listed", [adapter], scope=wider, permissions=permitted)
    made.rt.exec("listed", "two", allow_hosts=["service.example:443"]).check()


@pytest.mark.req("000-191")
def test_a_tool_without_a_status_is_neither_approved_nor_executed(made: MadeTools) -> None:
    folder = made.add("bare", [cli_adapter("ADP-bare")])
    made.rt.exec("bare", stdin="true").check()  # the control
    text = (folder / "tool.yaml").read_text()
    assert '"status": "active",' in text
    (folder / "tool.yaml").write_text(text.replace('"status": "active",', ""))
    with pytest.raises(ContractInvalid) as invalid:
        made.approve("bare")
    assert [each.field for each in invalid.value.problems] == ["status"]
    assert made.rt.exec("bare", stdin="true").reason_codes == ("TOOL_CHANGED",)
