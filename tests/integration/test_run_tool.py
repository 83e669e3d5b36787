"""`run_tool` of seed 004: the whole pipeline in one call, with permissions that only narrow."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from actum import ContractInvalid, Runtime, ToolRunResult, TraceContext
from actum.contract.model import RunnerKind
from actum.evidence.traces import Traces
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.store.keys import Keyring
from common.settings import add_settings

pytestmark = pytest.mark.sandbox

SECRET = "kept-for-this-one-tool"
#: What the tool `echo` is approved for.
OWN: dict[str, Any] = {
    "network": {"outbound": ["dns", "https"]},
    "filesystem": {"read": ["."], "write": ["."]},
    "secrets": {"allowed": ["TOKEN"]},
    "execution": {
        "runner": "local",
        "max_duration_sec": 20,
        "max_memory_mb": 256,
        "max_cpu_cores": 2,
    },
}


@pytest.fixture(scope="module")
def rt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    folder = tmp_path_factory.mktemp("run_tool")
    root = folder / "project"
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
    file = root / "tools/shell/tool.yaml"
    tool = yaml.safe_load(file.read_text())
    tool["scope"] |= {"network": "on", "hosts": ["api.test"]}
    tool["permissions"] = OWN
    file.write_text(yaml.safe_dump(tool))
    approve(root, Keyring.open(root / ".actum"), "shell", by="b", evidence="e", date="2026-11-15")
    (folder / "token").write_text(SECRET)
    (folder / "token").chmod(0o600)
    add_settings(root, f'\n[secrets]\nTOKEN = {{ file = "{folder}/token" }}\n')
    (root / "inside").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with Runtime.open(root) as runtime:
            yield runtime


def traced() -> TraceContext:
    return TraceContext(trace_id=str(uuid.uuid4()), execution_id=str(uuid.uuid4()))


def run(rt: Runtime, script: str, permissions: dict[str, Any], *words: str) -> ToolRunResult:
    args = {"stdin": script, "arguments": list(words)}
    return rt.run_tool("TL-010", args, permissions, traced())


@pytest.mark.req("004-31", "004-32", "004-35")
def test_the_named_tool_runs_with_exactly_these_arguments(rt: Runtime) -> None:
    words = ("two words", "$HOME;`", "", "last")
    done = run(rt, 'printf "%s|" "$@"; exit 3', {}, *words)
    assert (done.status, done.exit_code) == ("error", 3)
    assert done.stdout == "two words|$HOME;`||last|"
    snippet = rt.run_tool("python", {"stdin": "print(6 * 7)"}, {}, traced())
    assert (snippet.status, snippet.stdout, snippet.error_reason) == ("success", "42\n", None)


@pytest.mark.req("004-34")
def test_the_trace_is_the_callers(rt: Runtime) -> None:
    context = traced()
    done = rt.run_tool("TL-010", {"stdin": 'printf a > "$ACTUM_ARTIFACTS/a"'}, {}, context)
    events = Traces(rt.database).of_execution(context.execution_id)
    assert events
    assert {event["trace_id"] for event in events} == {context.trace_id}
    assert [it.trace_id for it in done.artifacts] == [context.trace_id]
    assert rt.services.executions.get(context.execution_id) is not None


LOOK = """
echo here > inside/written && echo wrote
cat actum.toml > /dev/null && echo read
getent hosts api.test > /dev/null && echo named
test -n "$TOKEN" && echo told
true
"""


@pytest.mark.req("004-33", "004-15")
def test_permissions_are_applied_as_they_are_given(rt: Runtime) -> None:
    """Each one with its control: the widest that the tool has, and less."""
    network, secrets = OWN["network"], OWN["secrets"]
    whole = run(rt, LOOK, {"network": network, "secrets": secrets})
    assert whole.stdout.split() == ["wrote", "read", "named", "told"]
    assert run(rt, LOOK, {}).stdout.split() == ["wrote", "read"]
    assert run(rt, LOOK, {"filesystem": {"write": []}}).stdout.split() == ["read"]
    narrow = {"filesystem": {"read": ["."], "write": ["inside"]}}
    assert run(rt, f"{LOOK}\necho x > top && echo more", narrow).stdout.split() == ["wrote", "read"]
    assert run(rt, LOOK, {"secrets": secrets}).stdout.split() == ["wrote", "read", "told"]


@pytest.mark.req("004-33", "004-15")
def test_limits_are_applied_as_they_are_given(rt: Runtime) -> None:
    grows = "head -c 100000000 /dev/zero | tail -c 90000000 > /dev/null"
    assert run(rt, grows, {"execution": {"max_memory_mb": 256}}).status == "success"
    assert run(rt, grows, {"execution": {"max_memory_mb": 64}}).status == "killed"
    late = run(rt, "sleep 30", {"execution": {"max_duration_sec": 3}})
    assert late.status == "timeout"
    assert 3_000 <= late.duration_ms < 6_000


WIDER: dict[str, dict[str, Any]] = {
    "effective_permissions.network.outbound": {"network": {"outbound": ["https", "tcp"]}},
    "effective_permissions.secrets.allowed": {"secrets": {"allowed": ["TOKEN", "OTHER"]}},
    "effective_permissions.execution.runner": {"execution": {"runner": "docker"}},
    "effective_permissions.execution.max_duration_sec": {"execution": {"max_duration_sec": 21}},
    "effective_permissions.execution.max_memory_mb": {"execution": {"max_memory_mb": 257}},
    "effective_permissions.execution.max_cpu_cores": {"execution": {"max_cpu_cores": 3}},
    "sandbox.filesystem.read": {"filesystem": {"read": [".", "/etc/hostname"]}},
    "sandbox.filesystem.write": {"filesystem": {"write": [".", "/tmp"]}},
}


@pytest.mark.req("004-15")
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_listed_path_that_no_tool_gets_is_refused(rt: Runtime, kind: str) -> None:
    """Nothing is silently narrower than it was given."""
    done = run(rt, "echo ran", {"filesystem": {kind: [".actum"]}})
    assert (done.status, done.exit_code, done.stdout) == ("error", None, "")
    assert f"sandbox.filesystem.{kind}[0]" in (done.error_reason or "")


@pytest.mark.req("004-33", "004-15")
@pytest.mark.parametrize("field", WIDER)
def test_permissions_that_are_wider_than_the_tools_are_refused(rt: Runtime, field: str) -> None:
    assert run(rt, "echo ran", {}).stdout == "ran\n"
    context = traced()
    done = rt.run_tool("TL-010", {"stdin": "echo ran"}, WIDER[field], context)
    assert (done.status, done.exit_code, done.stdout) == ("error", None, "")
    assert field in (done.error_reason or "")
    known = rt.services.executions.get(context.execution_id)
    assert known is not None  # a refusal is on record
    assert known.outcome == "REJECTED"


def test_the_form_of_permissions_is_checked(rt: Runtime) -> None:
    with pytest.raises(ContractInvalid, match=r"effective_permissions\.network\.outbound"):
        run(rt, "true", {"network": {"outbound": "everything"}})
    with pytest.raises(ContractInvalid, match="privileged"):
        run(rt, "true", {"privileged": True})


@pytest.mark.req("004-31", "004-35")
def test_an_unknown_tool_and_a_wrong_argument_are_results_too(rt: Runtime) -> None:
    for tool, args in (("TL-999", {}), ("TL-010", {"colour": "red"})):
        done = rt.run_tool(tool, args, {}, traced())
        assert (done.status, done.exit_code) == ("error", None)
        assert done.error_reason


@pytest.mark.parametrize("field", ["trace_id", "execution_id", "parent"])
def test_the_ids_of_a_trace_have_the_form_of_ids(rt: Runtime, field: str) -> None:
    """They go into signed records and to terminals."""
    good = {"trace_id": str(uuid.uuid4()), "execution_id": str(uuid.uuid4())}
    assert rt.run_tool("TL-010", {"stdin": "true"}, {}, TraceContext(**good)).status == "success"
    for text in ("\x1b[2J", "line\n", "", "x" * 129):
        given = {"trace_id": good["trace_id"], "execution_id": str(uuid.uuid4()), field: text}
        with pytest.raises(ContractInvalid, match=rf"trace_context\.{field}"):
            rt.run_tool("TL-010", {"stdin": "true"}, {}, TraceContext(**given))
