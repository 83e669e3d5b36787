"""Caps on each step, validators in three modes, corrections within their caps, convergence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.errors import Refused

from .runs_project import add_agent, item, make_project, work_file

LINT = {"id": "lint", "tool": "shell", "stdin": "grep -q good code.txt"}
#: Prints one finding less for each line of code.txt.
COUNTING = {
    "id": "count",
    "tool": "shell",
    "stdin": "n=$(wc -l < code.txt); python3 -c \"import json; print(json.dumps([{'code': f'E{i}',"
    " 'path': 'code.txt'} for i in range(3 - $n)]))\"; test $n -ge 3",
}
OFF = {"lightValidationMode": "off", "heavyValidationMode": "off"}


@pytest.fixture
def rt(tmp_path: Path) -> Iterator[Runtime]:
    with Runtime.open(make_project(tmp_path / "p"), pool=False) as runtime:
        yield runtime


def carried_out(rt: Runtime, source: str, config: dict[str, Any]) -> Any:
    run = rt.runs.submit(source, config=config, environ={})
    rt.runs.worker().drain()
    return rt.runs.status(run.run_id)


def steps(document: Any) -> list[tuple[str, str | None, str]]:
    return [(each["kind"], each["itemId"], each["status"]) for each in document["steps"]]


def test_the_status_says_why_a_step_did_not_succeed(rt: Runtime):
    root = rt.settings.root
    add_agent(root, "cat missing.txt > a")
    failed = carried_out(rt, work_file(item()), OFF)
    assert "missing.txt" in failed["steps"][0]["reason"]
    add_agent(root, "echo bad > code.txt")
    found = carried_out(rt, work_file(item(), light=[LINT]), {"profile": "full"})
    light = found["steps"][1]
    assert light["findings"] == [{"validator": "lint", "code": "exit:1", "path": ""}]
    assert light["executions"][0]["outcome"] == "TOOL_ERROR"
    assert light["executions"][0]["receipt_id"]


CAPS: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("touch a b c", {"maxFilesPerStep": 2}, {"maxFilesPerStep": 3}, "max_files_per_step", "a"),
    (
        "yes line | head -c 1500 > a",
        {"maxTotalDiffBytes": 1_000},
        {"maxTotalDiffBytes": 2_000},
        "max_total_diff_bytes",
        "a",
    ),
    (
        "head -c 1500 /dev/zero > a",
        {"maxFileBytes": 1_000},
        {"maxFileBytes": 2_000},
        "max_file_bytes",
        "a",
    ),
    (
        "mkdir conf; echo A=1 > conf/.env.local",
        {"allowEnvMutation": False},
        {"allowEnvMutation": True},
        "restricted_env_file",
        "conf/.env.local",
    ),
]


@pytest.mark.req("003-23")
@pytest.mark.parametrize(("script", "strict", "loose", "code", "file"), CAPS)
def test_a_step_over_a_cap_is_refused_and_commits_nothing(
    rt: Runtime,
    script: str,
    strict: dict[str, Any],
    loose: dict[str, Any],
    code: str,
    file: str,
) -> None:
    add_agent(rt.settings.root, script)
    refused = carried_out(rt, work_file(), strict)
    assert (refused["status"], steps(refused)) == ("failed", [("item", "work-item-1", "denied")])
    assert refused["steps"][0]["codes"] == [code]
    assert not (rt.settings.root / file).exists()
    taken = carried_out(rt, work_file(), loose)
    assert taken["status"] == "complete", taken
    assert (rt.settings.root / file).exists()


@pytest.mark.req("003-23")
@pytest.mark.parametrize("link", ["settings/production", "absolute", "chain", "now/production"])
def test_a_file_behind_a_link_named_env_is_an_environment_file(rt: Runtime, link: str) -> None:
    root = rt.settings.root
    (root / "settings").mkdir()
    (root / "settings/production").write_text("A=1\n")
    target = {"absolute": f"{root}/settings/production", "chain": "settings/now"}.get(link, link)
    (root / "settings/now").symlink_to("production")
    (root / "now").symlink_to("./settings")
    (root / ".env").symlink_to(target)
    for script in ("echo A=2 > .env", "echo A=2 > settings/production"):
        add_agent(root, script)
        refused = carried_out(rt, work_file(), {"profile": "ci"})
        assert refused["steps"][0]["codes"] == ["restricted_env_file"], script
        assert (root / "settings/production").read_text() == "A=1\n"
    add_agent(root, "echo A=2 > settings/staging")
    assert carried_out(rt, work_file(), {"profile": "ci"})["status"] == "complete"
    add_agent(root, "echo A=2 > .env")
    taken = carried_out(rt, work_file(), {"profile": "ci", "allowEnvMutation": True})
    assert taken["status"] == "complete"
    assert (root / "settings/production").read_text() == "A=2\n"


@pytest.mark.req("003-23")
@pytest.mark.parametrize("script", ["ln -sfn other now", "mv settings older", "rm .env"])
def test_an_environment_file_keeps_its_place_behind_links(rt: Runtime, script: str) -> None:
    root = rt.settings.root
    for folder in ("settings", "other"):
        (root / folder).mkdir()
        (root / folder / "production").write_text(f"A={folder}\n")
    (root / "now").symlink_to("settings")
    (root / ".env").symlink_to("now/production")
    add_agent(root, script)
    refused = carried_out(rt, work_file(), {"profile": "ci"})
    assert refused["steps"][0]["codes"] == ["restricted_env_file"]
    assert (root / ".env").read_text() == "A=settings\n"
    add_agent(root, "mv other older")
    assert carried_out(rt, work_file(), {"profile": "ci"})["status"] == "complete"


@pytest.mark.req("003-24")
def test_light_validation_off_warn_and_enforce(rt: Runtime) -> None:
    add_agent(rt.settings.root, "echo bad > code.txt; echo $RANDOM$$ > n.txt; date +%N >> n.txt")
    source = work_file(light=[LINT])
    off = carried_out(rt, source, {"lightValidationMode": "off"})
    assert (off["status"], [kind for kind, *_ in steps(off)]) == ("complete", ["item"])
    warn = carried_out(rt, source, {"lightValidationMode": "warn"})
    assert warn["status"] == "complete"
    assert ("light", "work-item-1", "failed") in steps(warn)
    enforce = carried_out(rt, source, {"lightValidationMode": "enforce"})
    assert (enforce["status"], enforce["error"]["code"]) == ("failed", "LIGHT_VALIDATION_FAILED")


@pytest.mark.req("003-24")
def test_heavy_validation_off_warn_and_enforce(rt: Runtime) -> None:
    add_agent(rt.settings.root, "echo bad > code.txt; date +%N > n.txt")
    source = work_file(heavy=[LINT])
    off = carried_out(rt, source, {"heavyValidationMode": "off"})
    assert (off["status"], off["validationStatus"]) == ("complete", None)
    assert rt.runs.gate(off["runId"]).document["reasonCodes"] == ["RUN_NOT_VALIDATED"]
    warn = carried_out(rt, source, {"heavyValidationMode": "warn"})
    assert (warn["status"], warn["validationStatus"]) == ("complete", "failed")
    assert rt.runs.gate(warn["runId"]).document["reasonCodes"] == ["RUN_VALIDATION_FAILED"]
    enforce = carried_out(rt, source, {"heavyValidationMode": "enforce"})
    assert (enforce["status"], enforce["error"]["code"]) == ("failed", "HEAVY_VALIDATION_FAILED")
    done = carried_out(rt, work_file(heavy=[{**LINT, "stdin": "true"}]), OFF)
    assert rt.runs.validate(done["runId"]) is True
    assert rt.runs.status(done["runId"])["validationStatus"] == "passed"


@pytest.mark.req("003-25")
@pytest.mark.parametrize(("most", "made"), [(0, 0), (2, 2)])
def test_runtime_corrections_stay_within_their_cap(rt: Runtime, most: int, made: int) -> None:
    add_agent(rt.settings.root, "echo bad > code.txt")
    add_agent(rt.settings.root, "echo worse >> code.txt", number=7)
    done = carried_out(
        rt,
        work_file(light=[LINT], corrector="agent-7"),
        {"maxRuntimeCorrectionAttempts": most, "correctionConvergenceMode": "off"},
    )
    assert (done["status"], done["error"]["code"]) == ("failed", "LIGHT_VALIDATION_FAILED")
    assert [name for kind, name, _ in steps(done) if kind == "correction"] == [
        f"work-item-1:c{number}" for number in range(1, made + 1)
    ]


@pytest.mark.req("003-25")
def test_heavy_corrections_go_on_until_the_validation_passes(rt: Runtime) -> None:
    add_agent(rt.settings.root, "echo one > code.txt")
    add_agent(rt.settings.root, "echo more >> code.txt", number=7)
    done = carried_out(
        rt, work_file(heavy=[COUNTING], corrector="agent-7"), {"maxHeavyCorrectionAttempts": 3}
    )
    assert (done["status"], done["validationStatus"]) == ("complete", "passed"), done
    assert steps(done) == [
        ("item", "work-item-1", "success"),
        ("heavy", None, "failed"),
        ("correction", "run:h1", "success"),
        ("heavy", None, "failed"),
        ("correction", "run:h2", "success"),
        ("heavy", None, "passed"),
    ]
    assert rt.runs.gate(done["runId"]).passed
    (rt.settings.root / "later.txt").write_text("")
    assert rt.runs.gate(done["runId"]).document["reasonCodes"] == ["RUN_COMMIT_UNPINNED"]
    capped = carried_out(
        rt,
        work_file(item(id="again"), heavy=[LINT], corrector="agent-7"),
        {"maxHeavyCorrectionAttempts": 0},
    )
    assert capped["error"]["code"] == "HEAVY_VALIDATION_FAILED"
    assert "correction" not in [kind for kind, *_ in steps(capped)]


def test_the_same_findings_again_end_the_run_only_under_enforce(rt: Runtime) -> None:
    add_agent(rt.settings.root, "echo bad > code.txt; date +%N > n.txt")
    add_agent(rt.settings.root, "echo bad >> code.txt", number=7)
    source = work_file(light=[LINT], corrector="agent-7")
    stopped = carried_out(rt, source, {"correctionConvergenceMode": "enforce"})
    assert stopped["error"]["code"] == "NOT_CONVERGING"
    assert [kind for kind, *_ in steps(stopped)].count("correction") == 1
    config = {"correctionConvergenceMode": "warn", "maxRuntimeCorrectionAttempts": 2}
    warned = carried_out(rt, source, config)
    assert warned["error"]["code"] == "LIGHT_VALIDATION_FAILED"
    assert [kind for kind, *_ in steps(warned)].count("correction") == 2


@pytest.mark.parametrize(
    ("script", "code"),
    [("true", "correction_commit_required"), ("echo x > other.txt", "correction_path_outside")],
)
def test_a_correction_changes_the_files_of_what_it_corrects(
    rt: Runtime, script: str, code: str
) -> None:
    add_agent(rt.settings.root, "echo bad > code.txt; date +%N >> code.txt")
    add_agent(rt.settings.root, script, number=7)
    source = work_file(light=[LINT], corrector="agent-7")
    config = {"maxRuntimeCorrectionAttempts": 1}
    enforced = carried_out(rt, source, {**config, "correctionPolicyMode": "enforce"})
    assert [each["codes"] for each in enforced["steps"] if each["kind"] == "correction"] == [[code]]
    free = carried_out(rt, source, {**config, "correctionPolicyMode": "off"})
    assert ("correction", "work-item-1:c1", "success") in steps(free)


def test_validators_change_nothing(rt: Runtime) -> None:
    add_agent(rt.settings.root, "echo good > code.txt")
    touching = {"id": "touching", "tool": "shell", "stdin": "echo x > left.txt"}
    done = carried_out(rt, work_file(light=[touching], heavy=[touching]), {})
    assert done["status"] == "complete"
    assert not (rt.settings.root / "left.txt").exists()


def test_a_run_without_heavy_validators_cannot_be_validated(rt: Runtime):
    """Nothing ran, so nothing failed: the gate says the same before and after."""
    add_agent(rt.settings.root, "echo good > code.txt")
    run_id = carried_out(rt, work_file(item()), {"profile": "full"})["runId"]
    with pytest.raises(Refused, match="no heavy validator"):
        rt.runs.validate(run_id)
    assert rt.runs.gate(run_id).document["reasonCodes"] == ["RUN_NOT_VALIDATED"]


def test_a_validator_that_was_refused_found_nothing_and_is_not_corrected(rt: Runtime):
    add_agent(rt.settings.root, "echo good > code.txt")
    add_agent(rt.settings.root, "echo fix >> code.txt", number=7)
    source = work_file(item(), heavy=[{"id": "t", "tool": "shell"}], corrector="agent-7")
    document = carried_out(rt, source, {"profile": "full"})
    assert (document["status"], document["error"]["code"]) == ("failed", "PROGRAM_EMPTY")
    assert "validator t was refused" in document["error"]["message"]
    assert [each["kind"] for each in document["steps"]] == ["item", "heavy"]
