"""Standing approvals: what they permit, what ends them, and that each use is counted."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum import Outcome, Result, Runtime
from actum.approvals.standing import StandingApproval
from actum.contract.request import ExecRequest
from actum.errors import Refused
from actum.evidence.records.audit import Decision
from actum.registry.approval_workflow import block, unblock
from actum.store.keys import Keyring
from common.settings import add_settings

from .project import Project, decide_all, elevated, request_ids

SELF = Path(__file__).resolve()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "out"
    made.mkdir()
    return made


@pytest.fixture
def project(tmp_path: Path, out: Path) -> Project:
    return Project(tmp_path, scope=(".", "/etc", str(out.parent)))


@pytest.fixture
def runtime(project: Project) -> Iterator[Runtime]:
    with project.open() as runtime:
        yield runtime


def call(runtime: Runtime, project: Project, *write: Path, **words: Any) -> Result:
    words.setdefault("stdin", b"true")
    fields = elevated(*words.pop("read", ()), write=[str(path) for path in write])
    return runtime.exec("shell", cwd=project.work, set=fields, **words)


def grant(runtime: Runtime, *paths: Path, **words: Any) -> StandingApproval:
    words = {"uses": 2, "by": "boss", "why": "the export writes there"} | words
    return runtime.standing_approvals.grant("shell", paths=paths, **words)


def why(result: Result) -> str:
    """The reason in a refusal that says why no standing approval applies."""
    request_ids(result)
    (violation,) = result.violations
    return violation.message.partition(" does not apply: ")[2]


def predicate(runtime: Runtime, result: Result) -> dict[str, Any]:
    kept = runtime.services.receipts.find(result.receipt_id)
    document: dict[str, Any] = json.loads(base64.b64decode(kept.envelope["payload"]))["predicate"]
    return document


def problems(runtime: Runtime) -> list[str]:
    return [each.subject for each in runtime.verifier.verify_all() if not each.passed]


def test_it_serves_different_calls_as_often_as_it_says(
    runtime: Runtime, project: Project, out: Path
) -> None:
    assert why(call(runtime, project, out)) == ""
    approval = grant(runtime, out)
    below = out / "below"
    below.mkdir()
    for stdin, path in ((b"one", out), (b"two", below)):
        assert call(runtime, project, path, stdin=stdin).outcome is Outcome.SUCCEEDED
    assert project.runner.plans[-1].policy.write == (str(below),)
    assert why(call(runtime, project, out)) == "its 2 uses are used up."
    assert len(project.runner.plans) == 2
    assert runtime.standing_approvals.find(approval.approval_id).uses_left == 0
    assert runtime.standing_approvals.latest() == ()
    (listed,) = runtime.standing_approvals.latest(ended=True)
    assert runtime.standing_approvals.why_ended(listed) == "its 2 uses are used up"
    assert problems(runtime) == []


def test_equal_calls_are_counted_each_time_and_no_decision_about_them_is_cached(
    runtime: Runtime, project: Project, out: Path
) -> None:
    approval = grant(runtime, out, uses=5)
    for used in (1, 2, 3):
        assert call(runtime, project, out).outcome is Outcome.SUCCEEDED
        assert runtime.standing_approvals.find(approval.approval_id).used == used
    assert runtime.services.decision_cache.kept == {}
    runtime.standing_approvals.revoke(approval.approval_id, by="boss", why="enough")
    assert why(call(runtime, project, out)).startswith("boss revoked it at 2026-")


def test_receipt_policy_trace_and_log_name_it(
    runtime: Runtime, project: Project, out: Path
) -> None:
    approval = grant(runtime, out)
    result = call(runtime, project, out)
    name = f"standing:{approval.approval_id}"
    document = predicate(runtime, result)
    assert document["approvals"] == ["AG-01:pin", f"AG-04:{name}"]
    (decision,) = document["decisions"]
    assert decision == {
        "gate": "AG-04",
        "request_id": approval.approval_id,
        "decided_by": name,
        "granted_by": "boss",
        "decided_uid": os.getuid(),
        "decided_user": approval.granted.user.name,
        "role": "any",
        "requested_uid": os.getuid(),
        "same_user": True,
    }
    records = [json.loads(row[0]) for row in runtime.database.rows("SELECT record FROM audit")]
    granted, used = [record for record in records if record["kind"] == "STANDING"]
    assert (granted["event"], granted["decided_by"]) == ("granted", "boss")
    assert (used["event"], used["decided_by"]) == ("used", name)
    assert (used["execution_id"], used["used"], used["uses"]) == (result.execution_id, 1, 2)
    assert str(out) not in json.dumps(records)  # no text of a caller is in the log
    findings = runtime.verifier.verify_execution(result.receipt_id)
    (said,) = [each for each in findings if each.check == "approval"]
    assert said.passed
    assert f"standing approval {approval.approval_id}, granted by boss" in said.detail


def test_a_receipt_whose_use_is_not_on_record_does_not_verify(
    runtime: Runtime, project: Project, out: Path
) -> None:
    grant(runtime, out)
    result = call(runtime, project, out)
    connection = runtime.database._connection
    connection.execute("DROP TRIGGER audit_is_never_changed")
    connection.execute(
        "UPDATE audit SET record = CAST(replace(CAST(record AS TEXT), '\"used\"', '\"none\"')"
        " AS BLOB) WHERE instr(record, CAST('\"STANDING\"' AS BLOB))"
    )
    (said,) = [
        each
        for each in runtime.verifier.verify_execution(result.receipt_id)
        if each.check == "approval"
    ]
    assert not said.passed


@pytest.mark.parametrize(("until", "lasts"), [(timedelta(days=30), 30), ("date", 5)])
def test_it_ends_at_its_time(
    runtime: Runtime, project: Project, out: Path, until: Any, lasts: int
) -> None:
    if until == "date":
        until = datetime(2026, 11, 20, 12, tzinfo=UTC)
    approval = grant(runtime, out, uses=None, until=until)
    assert approval.uses_left is None
    for _ in range(3):
        assert call(runtime, project, out).outcome is Outcome.SUCCEEDED
    project.clock.pass_by(days=lasts, milliseconds=-1)
    assert call(runtime, project, out).outcome is Outcome.SUCCEEDED
    project.clock.pass_by(milliseconds=1)
    assert why(call(runtime, project, out)) == f"it expired at {approval.until}."


def test_a_clock_that_is_set_back_does_not_renew_it(
    runtime: Runtime, project: Project, out: Path
) -> None:
    grant(runtime, out, until=timedelta(hours=1))
    project.clock.pass_by(hours=2)
    assert "expired" in why(call(runtime, project, out))
    project.clock.pass_by(hours=-2)
    refused = call(runtime, project, out, stdin=b"again")
    assert refused.reason_codes == ("STANDING_APPROVAL_ENDED",)
    assert project.runner.plans == []


def test_a_written_request_time_does_not_renew_it(
    runtime: Runtime, project: Project, out: Path
) -> None:
    grant(runtime, out, until=timedelta(hours=1))
    project.clock.pass_by(hours=2)
    fields = elevated(write=[str(out)]) | {"metadata.requested_at": "2026-11-15T12:00:00Z"}
    refused = runtime.exec("shell", stdin=b"true", cwd=project.work, set=fields)
    assert "expired" in why(refused)


def _changed_folder(project: Project) -> None:
    project.approve_change("another sentence")


def _folder_put_back(project: Project) -> None:
    readme = project.root / "tools/shell/README.md"
    before = readme.read_bytes()
    project.approve_change("another sentence")
    readme.write_bytes(before)
    project._approve()


def _wider_scope(project: Project) -> None:
    file = project.root / "tools/shell/tool.yaml"
    tool = yaml.safe_load(file.read_text())
    tool["scope"] |= {"filesystem": [*tool["scope"]["filesystem"], "/srv"], "network": "off"}
    file.write_text(yaml.safe_dump(tool))
    project._approve()


def _blocked_and_unblocked(project: Project) -> None:
    keyring = Keyring.open(project.root / ".actum")
    words: Any = {"by": "user:maker", "evidence": "test", "date": "2026-11-16"}
    block(project.root, keyring, "TL-010", **words)
    unblock(project.root, keyring, "TL-010", **words)


def _settings(project: Project) -> None:
    add_settings(project.root, "[limits]\nmax_concurrent = 3\n[network]\napis = ['x.example']\n")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_changed_folder, "the tool's folder has changed since"),
        (_folder_put_back, "the tool was approved, deprecated, blocked or unblocked since"),
        (_wider_scope, "the tool's folder has changed since"),
        (_blocked_and_unblocked, "the tool was approved, deprecated, blocked or unblocked since"),
        (_settings, "the settings of actum.toml have changed since"),
    ],
)
def test_any_change_of_the_tool_or_the_settings_ends_it_for_good(
    project: Project, out: Path, change: Callable[[Project], None], reason: str
) -> None:
    with project.open() as runtime:
        approval = grant(runtime, out, uses=None, until=timedelta(days=1))
        assert call(runtime, project, out).outcome is Outcome.SUCCEEDED
    change(project)
    with project.open() as runtime:
        assert why(call(runtime, project, out)).startswith(reason)
        assert runtime.standing_approvals.why_ended(approval).startswith(reason)
        assert runtime.standing_approvals.latest() == ()
    assert len(project.runner.plans) == 1


def test_block_wins(runtime: Runtime, project: Project, out: Path) -> None:
    approval = grant(runtime, out)
    words: Any = {"by": "user:maker", "evidence": "test", "date": "2026-11-16"}
    block(project.root, Keyring.open(project.root / ".actum"), "TL-010", **words)
    assert call(runtime, project, out).reason_codes == ("TOOL_NOT_ACTIVE",)
    assert runtime.standing_approvals.why_ended(approval) == "the tool is blocked"
    with pytest.raises(Refused) as refusal:
        grant(runtime, out)
    assert refusal.value.code == "TOOL_NOT_ACTIVE"


def test_a_denial_of_exactly_this_call_wins(runtime: Runtime, project: Project, out: Path) -> None:
    decide_all(runtime, call(runtime, project, out), Decision.DENY)
    grant(runtime, out)
    assert call(runtime, project, out).reason_codes == ("APPROVAL_DENIED",)
    assert call(runtime, project, out, stdin=b"other").outcome is Outcome.SUCCEEDED


def test_a_decision_about_exactly_this_call_is_used_before_it(
    runtime: Runtime, project: Project, out: Path
) -> None:
    decide_all(runtime, call(runtime, project, out))
    approval = grant(runtime, out)
    assert call(runtime, project, out).outcome is Outcome.SUCCEEDED
    assert runtime.standing_approvals.find(approval.approval_id).used == 0


@pytest.mark.parametrize("by", ["asker", "user:ASKER"])
def test_the_requester_cannot_use_what_the_requester_granted(
    runtime: Runtime, project: Project, out: Path, by: str
) -> None:
    grant(runtime, out, by=by)
    assert why(call(runtime, project, out)) == "user:asker granted it and cannot use it."
    other = call(runtime, project, out, requested_by="user:other")
    assert other.outcome is Outcome.SUCCEEDED


def test_it_never_serves_the_elevated_level(runtime: Runtime, project: Project, out: Path) -> None:
    approval = grant(runtime, out)
    (request_id,) = request_ids(call(runtime, project, out, read=("/etc/passwd",)))
    assert runtime.approvals.find(request_id).gate == "AG-05"
    # What the person decides and what stands are used together.
    runtime.approvals.decide(request_id, Decision.ALLOW, by="boss", why="once")
    assert call(runtime, project, out, read=("/etc/passwd",)).outcome is Outcome.SUCCEEDED
    assert runtime.standing_approvals.find(approval.approval_id).used == 1


def test_one_execution_with_several_needs_is_one_use(
    runtime: Runtime, project: Project, out: Path
) -> None:
    first, second = out / "first", out / "second"
    first.mkdir()
    second.mkdir()
    approval = grant(runtime, first, second, uses=1)
    assert call(runtime, project, first, second).outcome is Outcome.SUCCEEDED
    assert runtime.standing_approvals.find(approval.approval_id).used == 1
    assert problems(runtime) == []


def test_one_without_a_count_is_used_before_one_with_a_count(
    runtime: Runtime, project: Project, out: Path
) -> None:
    lasting = grant(runtime, out, uses=None, until=timedelta(days=1))
    counted = grant(runtime, out)
    assert call(runtime, project, out).outcome is Outcome.SUCCEEDED
    found = runtime.standing_approvals.find
    assert (found(lasting.approval_id).used, found(counted.approval_id).used) == (1, 0)


def test_what_fails_before_the_start_uses_nothing(
    runtime: Runtime, project: Project, out: Path
) -> None:
    approval = grant(runtime, out, uses=1)

    project.runner.broken = True
    with pytest.raises(Exception, match="went away"):
        call(runtime, project, out)
    project.runner.broken = False
    assert runtime.standing_approvals.find(approval.approval_id).used == 0
    assert call(runtime, project, out).outcome is Outcome.SUCCEEDED


# Paths


def test_a_neighbour_with_the_same_beginning_is_not_covered(
    runtime: Runtime, project: Project, out: Path
) -> None:
    grant(runtime, out)
    other = out.with_name("out2")
    other.mkdir()
    assert why(call(runtime, project, other)) == f"its paths ({out}) do not cover {other}."


def test_a_link_inside_an_approved_folder_leads_nowhere(
    runtime: Runtime, project: Project, out: Path
) -> None:
    secret = out.with_name("secret")
    secret.mkdir()
    grant(runtime, out)
    (out / "link").symlink_to(secret)  # as a tool with access could have made it
    assert f"do not cover {secret}" in why(call(runtime, project, out / "link"))


def test_an_approved_folder_that_became_a_link_is_not_covered(
    runtime: Runtime, project: Project, out: Path
) -> None:
    grant(runtime, out)
    secret = out.with_name("secret")
    out.rename(secret)
    out.symlink_to(secret)
    assert f"do not cover {secret}" in why(call(runtime, project, out))


def test_a_path_through_a_link_that_a_tool_may_have_made_is_not_granted(
    runtime: Runtime, project: Project, out: Path
) -> None:
    (project.work / "link").symlink_to(out)
    with pytest.raises(Refused, match="a tool may have made") as refusal:
        grant(runtime, project.work / "link")
    assert refusal.value.code == "DECISION_UNFIT"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"paths": []}, "DECISION_UNFIT"),
        ({"paths": ["/"]}, "DECISION_UNFIT"),
        ({"paths": [".actum"]}, "DECISION_UNFIT"),
        ({"paths": ["/srv/elsewhere"]}, "SCOPE_EXCEEDED"),
        ({"hosts": ["db.corp"]}, "SCOPE_EXCEEDED"),
        ({"hosts": ["*"]}, "DECISION_UNFIT"),
        ({"hosts": ["http://db.corp"]}, "DECISION_UNFIT"),
        ({"hosts": ["0x7f.1"]}, "DECISION_UNFIT"),
        ({"hosts": ["db.corp:70000"]}, "DECISION_UNFIT"),
        ({"uses": 0}, "DECISION_UNFIT"),
        ({"uses": None}, "DECISION_UNFIT"),
        ({"until": timedelta(0)}, "DECISION_UNFIT"),
        ({"until": timedelta.max}, "DECISION_UNFIT"),
        ({"until": datetime(2027, 1, 1)}, "DECISION_UNFIT"),  # noqa: DTZ001 -- no offset: refused
        ({"until": datetime(2020, 1, 1, tzinfo=UTC)}, "DECISION_UNFIT"),
        ({"by": "two words"}, "DECISION_UNFIT"),
        ({"why": " "}, "DECISION_UNFIT"),
        ({"tool": "unknown"}, "TOOL_UNKNOWN"),
    ],
)
def test_a_grant_that_could_not_serve_is_refused_and_nothing_is_stored(
    runtime: Runtime, project: Project, out: Path, words: dict[str, Any], code: str
) -> None:
    whole: dict[str, Any] = {"paths": [out], "uses": 1, "by": "boss", "why": "so", "tool": "shell"}
    if words.get("paths") == [".actum"]:
        words = {"paths": [project.root / ".actum"]}
    whole |= words
    with pytest.raises(Refused) as refusal:
        runtime.standing_approvals.grant(whole.pop("tool"), **whole)
    assert refusal.value.code == code
    assert runtime.standing_approvals.latest(ended=True) == ()


# Hosts


@pytest.fixture
def connected(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    file = project.root / "tools/shell/tool.yaml"
    tool = yaml.safe_load(file.read_text())
    hosts = ["*.corp", "public.example", "127.0.0.9:8080"]
    tool["scope"] |= {"network": "on", "hosts": hosts}
    tool["permissions"]["network"] = {"outbound": ["https"]}
    file.write_text(yaml.safe_dump(tool))
    project._approve()
    add_settings(project.root, '[egress.resolve]\n"db.corp:443" = "10.0.0.7:443"\n')
    return project


def reach(runtime: Runtime, project: Project, *hosts: str) -> Result:
    fields = {"sandbox.network.enabled": True, "sandbox.network.allow": list(hosts)}
    return runtime.exec("shell", stdin=b"true", cwd=project.work, set=fields)


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("db.corp", "db.corp"),
        ("DB.Corp:443", "db.corp"),
        ("*.corp", "db.corp:443"),
        ("db.corp", "DB.CORP"),
        ("127.0.0.9", "127.0.0.9:8080"),
    ],
)
def test_an_approved_internal_host_is_reached(connected: Project, host: str, asked: str) -> None:
    with connected.open() as runtime:
        request_ids(reach(runtime, connected, asked))
        approval = runtime.standing_approvals.grant(
            "shell", hosts=[host], uses=1, by="boss", why="so"
        )
        assert reach(runtime, connected, asked).outcome is Outcome.SUCCEEDED
        (plan,) = connected.runner.plans
        assert plan.policy.network.internal != ()
        assert f"AG-03:standing:{approval.approval_id}" in plan.policy.approvals
        assert why(reach(runtime, connected, asked)) == "its 1 uses are used up."


def test_another_host_of_the_call_needs_its_own_decision(connected: Project) -> None:
    with connected.open() as runtime:
        runtime.standing_approvals.grant("shell", hosts=["db.corp"], uses=1, by="boss", why="so")
        refused = reach(runtime, connected, "db.corp", "127.0.0.9:8080")
        assert "do not cover 127.0.0.9:8080" in why(refused)


def test_another_address_of_the_host_ends_it(connected: Project) -> None:
    with connected.open() as runtime:
        runtime.standing_approvals.grant("shell", hosts=["db.corp"], uses=9, by="boss", why="so")
    file = connected.root / "actum.toml"
    file.write_text(file.read_text().replace("10.0.0.7", "10.0.0.8"))
    add_settings(connected.root, "")
    with connected.open() as runtime:
        assert "settings" in why(reach(runtime, connected, "db.corp"))


def test_a_public_host_of_the_scope_needs_no_standing_approval(connected: Project) -> None:
    with connected.open() as runtime:
        assert reach(runtime, connected, "public.example").outcome is Outcome.SUCCEEDED
        with pytest.raises(Refused) as refusal:
            runtime.standing_approvals.grant(
                "shell", hosts=["public.example"], uses=1, by="boss", why="so"
            )
        assert refusal.value.code == "NOTHING_TO_DECIDE"


def test_a_host_that_only_a_wildcard_of_the_scope_covers_is_reached(tmp_path: Path) -> None:
    project = Project(tmp_path)
    file = project.root / "tools/shell/tool.yaml"
    tool = yaml.safe_load(file.read_text())
    tool["scope"] |= {"network": "on", "hosts": ["*", "named.example"]}
    tool["permissions"]["network"] = {"outbound": ["https"]}
    file.write_text(yaml.safe_dump(tool))
    project._approve()
    with project.open() as runtime:
        request_ids(reach(runtime, project, "public.example"))
        grants = runtime.standing_approvals
        grants.grant("shell", hosts=["public.example"], uses=1, by="boss", why="so")
        assert reach(runtime, project, "public.example").outcome is Outcome.SUCCEEDED
        assert why(reach(runtime, project, "public.example")) == "its 1 uses are used up."
        assert why(reach(runtime, project, "other.example"))
        with pytest.raises(Refused) as refusal:
            grants.grant("shell", hosts=["named.example"], uses=1, by="boss", why="so")
        assert refusal.value.code == "NOTHING_TO_DECIDE"


def test_network_level_open_needs_a_decision_each_time(connected: Project) -> None:
    with connected.open() as runtime:
        runtime.standing_approvals.grant("shell", hosts=["*.corp"], uses=9, by="boss", why="so")
        fields = {"sandbox.network.level": "open"}
        opened = runtime.exec("shell", stdin=b"true", cwd=connected.work, set=fields)
        assert "do not cover any host" in opened.violations[0].message


# Rows that were changed outside Actum


class Intruder:
    """Edits the store as a program with access to it would, without the key."""

    def __init__(self, project: Project) -> None:
        self._file = project.root / ".actum/actum.db"

    def __call__(self, *statements: str) -> None:
        connection = sqlite3.connect(self._file)
        guards = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in guards:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, declaration in guards:
            connection.execute(declaration)
        connection.commit()
        connection.close()


_GRANT_SEQ = "(SELECT min(seq) FROM audit WHERE instr(record, CAST('STANDING' AS BLOB)))"
_NOT_STANDING = (
    "UPDATE audit SET record = CAST(replace(CAST(record AS TEXT), 'STANDING', 'NOTHING_')"
    f" AS BLOB) WHERE seq > {_GRANT_SEQ}"
)


@pytest.mark.parametrize(
    "edits",
    [
        ["UPDATE standing_approvals SET used = 0"],
        ["UPDATE standing_approvals SET uses = 9"],
        ["UPDATE standing_approvals SET uses = NULL, until = '2099-01-01T00:00:00.000Z'"],
        [f"UPDATE standing_approvals SET used = 0, last_used_by = NULL, last_seq = {_GRANT_SEQ}"],
        [
            f"UPDATE standing_approvals SET used = 0, last_used_by = NULL, last_seq = {_GRANT_SEQ}",
            _NOT_STANDING,
        ],
        [
            f"UPDATE standing_approvals SET used = 0, last_used_by = NULL, last_seq = {_GRANT_SEQ}",
            f"UPDATE audit SET nodes = zeroblob(32) WHERE seq = {_GRANT_SEQ} - 1",
            _NOT_STANDING,
        ],
        ["UPDATE standing_approvals SET used = 0, last_seq = 999999"],
        ["UPDATE standing_approvals SET used = 0, paths = '[\"/\"]'"],
    ],
    ids=["used", "uses", "until", "all", "all-and-log", "all-and-tree", "no-record", "paths"],
)
def test_a_used_up_approval_that_was_edited_serves_nothing(
    project: Project, out: Path, edits: list[str]
) -> None:
    with project.open() as runtime:
        grant(runtime, out, uses=1)
        assert call(runtime, project, out).outcome is Outcome.SUCCEEDED
        runtime.database.write_out()
    Intruder(project)(*edits)
    with project.open() as runtime:
        refused = call(runtime, project, out)
        assert refused.outcome is Outcome.REJECTED, refused
        assert refused.reason_codes == ("APPROVAL_NOT_RECORDED",)
        assert problems(runtime) != []
    assert len(project.runner.plans) == 1


@pytest.mark.parametrize("back", ["", f", last_seq = {_GRANT_SEQ}"])
def test_a_revoked_approval_that_was_put_back_serves_nothing(
    project: Project, out: Path, back: str
) -> None:
    with project.open() as runtime:
        approval = grant(runtime, out, uses=9)
        runtime.standing_approvals.revoke(approval.approval_id, by="boss", why="no more")
        with pytest.raises(Refused) as again:
            runtime.standing_approvals.revoke(approval.approval_id, by="boss", why="no more")
        assert again.value.code == "ALREADY_DECIDED"
    names = ("at", "by", "uid", "user", "role", "why")
    undone = ", ".join(f"revoked_{name} = NULL" for name in names)
    Intruder(project)(f"UPDATE standing_approvals SET {undone}{back}")
    with project.open() as runtime:
        assert runtime.standing_approvals.latest() != ()  # the row alone looks valid
        assert call(runtime, project, out).reason_codes == ("APPROVAL_NOT_RECORDED",)
    assert project.runner.plans == []


def test_an_expiry_that_was_moved_serves_nothing(project: Project, out: Path) -> None:
    with project.open() as runtime:
        grant(runtime, out, uses=None, until=timedelta(hours=1))
    project.clock.pass_by(hours=2)
    Intruder(project)("UPDATE standing_approvals SET until = '2099-01-01T00:00:00.000Z'")
    with project.open() as runtime:
        assert call(runtime, project, out).reason_codes == ("APPROVAL_NOT_RECORDED",)


def test_a_row_that_is_no_approval_is_refused_in_words(project: Project, out: Path) -> None:
    with project.open() as runtime:
        grant(runtime, out)
    Intruder(project)("UPDATE standing_approvals SET binding = 'no json'")
    with project.open() as runtime:
        assert call(runtime, project, out).reason_codes == ("APPROVAL_NOT_RECORDED",)


def test_a_decision_for_one_call_that_was_used_and_put_back_serves_nothing(
    project: Project, out: Path
) -> None:
    with project.open() as runtime:
        decide_all(runtime, call(runtime, project, out))
        assert call(runtime, project, out).outcome is Outcome.SUCCEEDED
    Intruder(project)("UPDATE approvals SET state = 'approved', used_by = NULL")
    with project.open() as runtime:
        assert call(runtime, project, out).reason_codes == ("APPROVAL_NOT_RECORDED",)
    assert len(project.runner.plans) == 1


# Several processes

_CHILD = """
import json, os, signal, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from execution.project import ScriptedRunner, elevated
from actum import Runtime
from actum.contract.model import RunnerKind
from actum.settings import load

class Dying(ScriptedRunner):
    def run(self, plan, emit, on_output=None, cancel=None, permit=None):
        permit()
        os.kill(os.getpid(), signal.SIGKILL)

root, out, dies = Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "dies"
runner = Dying() if dies else ScriptedRunner()
settings = load(root / ".actum", {"LOGNAME": "asker"})
with Runtime(settings, runners={RunnerKind.LOCAL: runner}) as runtime:
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    sys.stdin.readline()
    codes = []
    for number in range(4):
        fields = elevated(write=[out])
        words = {"stdin": b"%d" % os.getpid(), "cwd": root / "work", "set": fields}
        codes.append(str(runtime.exec("shell", **words).outcome))
print(json.dumps(codes))
"""


def child(project: Project, out: Path, how: str) -> subprocess.Popen[str]:
    folders = json.dumps([str(SELF.parent.parent), str(SELF.parent.parent.parent)])
    words = [sys.executable, "-c", _CHILD, folders, str(project.root), str(out), how]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_at_once_use_it_exactly_as_often_as_it_says(project: Project, out: Path) -> None:
    with project.open() as runtime:
        approval = grant(runtime, out, uses=7, until=None)
    children = [child(project, out, "lives") for _ in range(3)]
    for each in children:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    said = [each.communicate("go\n")[0] for each in children]
    outcomes = [outcome for text in said for outcome in json.loads(text)]
    assert outcomes.count("SUCCEEDED") == 7
    assert outcomes.count("REJECTED") == 5
    with project.open() as runtime:
        assert runtime.standing_approvals.find(approval.approval_id).uses_left == 0
        assert problems(runtime) == []


def test_a_process_that_is_killed_as_its_tool_starts_has_spent_the_use(
    project: Project, out: Path
) -> None:
    with project.open() as runtime:
        approval = grant(runtime, out, uses=2)
    killed = child(project, out, "dies")
    killed.communicate("go\n")
    assert killed.returncode == -signal.SIGKILL
    with project.open() as runtime:
        assert runtime.standing_approvals.find(approval.approval_id).used == 1
        assert call(runtime, project, out).outcome is Outcome.SUCCEEDED
        assert why(call(runtime, project, out)) == "its 2 uses are used up."
        assert problems(runtime) == []


# Calls that wait for a decision


def test_a_call_that_waits_goes_on_with_a_standing_approval(
    runtime: Runtime, project: Project, out: Path
) -> None:
    elsewhere = out.with_name("elsewhere")
    elsewhere.mkdir()
    asked: list[list[str]] = []

    def granted(result: Result) -> None:
        # One that does not cover it, and then one that does.
        asked.append(request_ids(result))
        grant(runtime, elsewhere if len(asked) == 1 else out)

    fields = elevated(write=[str(out)])
    request = ExecRequest(tool="shell", stdin=b"true", cwd=str(project.work), set=fields)
    result = runtime.execute(runtime.draft(request), wait_s=60, on_waiting=granted)
    assert result.outcome is Outcome.SUCCEEDED
    assert asked[0] == asked[1]


def test_an_awaited_call_that_waits_goes_on_too(
    runtime: Runtime, project: Project, out: Path
) -> None:
    async def wait() -> Result:
        words: Any = {"stdin": b"true", "cwd": project.work, "set": elevated(write=[str(out)])}
        waiting = lambda _result: grant(runtime, out)  # noqa: E731
        return await runtime.aio.exec("shell", wait_s=60, on_waiting=waiting, **words)

    assert asyncio.run(wait()).outcome is Outcome.SUCCEEDED
