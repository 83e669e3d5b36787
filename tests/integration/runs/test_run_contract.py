"""The contract of a run: 13 fields, resolved, hashed and persisted, through `rt.runs`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.errors import ContractInvalid, Refused

from .runs_project import item, make_project, metadata, submit, work_file

MODES = ("off", "warn", "enforce")
#: field -> (permitted values, refused values)
FIELDS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "schemaVersion": ((1,), (0, 2, True, "1", 1.0)),
    "profile": (("full", "ci", "smoke"), ("Full", "fast", "", 1, None)),
    "lightValidationMode": (MODES, ("on", "OFF", True, None)),
    "heavyValidationMode": (MODES, ("on", "strict", 0, None)),
    "maxRuntimeCorrectionAttempts": ((0, 5), (-1, 6, 2.0, "2", True)),
    "maxHeavyCorrectionAttempts": ((0, 3), (-1, 4, 1.0, "1", False)),
    "correctionPolicyMode": (MODES, ("none", "", None)),
    "correctionConvergenceMode": (MODES, ("none", "", None)),
    "plannerTimeoutMs": ((1_000, 300_000), (999, 300_001, 5_000.0, "5000")),
    "maxFilesPerStep": ((1, 100), (0, 101, 1.5, True)),
    "maxTotalDiffBytes": ((1_000, 10_000_000), (999, 10_000_001, "1000")),
    "maxFileBytes": ((1_000, 20_000_000), (999, 20_000_001, None)),
    "allowEnvMutation": ((True, False), (0, 1, "true", None)),
}
FULL = {
    "schemaVersion": 1,
    "profile": "full",
    "lightValidationMode": "enforce",
    "heavyValidationMode": "enforce",
    "maxRuntimeCorrectionAttempts": 5,
    "maxHeavyCorrectionAttempts": 3,
    "correctionPolicyMode": "enforce",
    "correctionConvergenceMode": "enforce",
    "plannerTimeoutMs": 120_000,
    "maxFilesPerStep": 15,
    "maxTotalDiffBytes": 400_000,
    "maxFileBytes": 1_500_000,
    "allowEnvMutation": False,
}
KEYS = {
    "executionConfig",
    "executionContractSchemaVersion",
    "executionContractHash",
    "executionContractMaterial",
    "effectiveExecutionConfig",
    "executionContractFallbackUsed",
    "executionContractFallbackFields",
}
VARIABLES = {
    "lightValidationMode": ("AGENT_LIGHT_VALIDATION_MODE", "off"),
    "heavyValidationMode": ("AGENT_HEAVY_VALIDATION_MODE", "warn"),
    "maxRuntimeCorrectionAttempts": ("AGENT_GOAL_MAX_CORRECTIONS", 2),
    "maxHeavyCorrectionAttempts": ("AGENT_OPTIMIZATION_MAX_CORRECTIONS", 1),
    "correctionPolicyMode": ("AGENT_CORRECTION_POLICY_MODE", "warn"),
    "correctionConvergenceMode": ("AGENT_CORRECTION_CONVERGENCE_MODE", "off"),
    "plannerTimeoutMs": ("DEEPRUN_PLANNER_TIMEOUT_MS", 9_000),
    "maxFilesPerStep": ("AGENT_FS_MAX_FILES_PER_STEP", 7),
    "maxTotalDiffBytes": ("AGENT_FS_MAX_TOTAL_DIFF_BYTES", 2_000),
    "maxFileBytes": ("AGENT_FS_MAX_FILE_BYTES", 3_000),
    "allowEnvMutation": ("AGENT_FS_ALLOW_ENV_MUTATION", True),
}
_ROWS = {name: f"003-{number}" for number, name in enumerate(FIELDS, start=9)}


@pytest.fixture(scope="module")
def rt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    folder = make_project(tmp_path_factory.mktemp("runs") / "p")
    with Runtime.open(folder, pool=False) as runtime:
        yield runtime


def config_of(rt: Runtime, run_id: str) -> dict[str, Any]:
    found = metadata(rt.runs, run_id)["effectiveExecutionConfig"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.req(row)) for name, row in _ROWS.items()]
)
def test_each_field_takes_its_range_and_nothing_else(rt: Runtime, name: str) -> None:
    permitted, refused = FIELDS[name]
    for value in permitted:
        assert config_of(rt, submit(rt, {name: value}).run_id)[name] == value
    before = len(rt.runs.list(limit=10_000))
    for value in refused:
        with pytest.raises(ContractInvalid) as error:
            submit(rt, {name: value})
        assert [problem.field for problem in error.value.problems] == [name], value
        assert error.value.problems[0].permitted
    assert len(rt.runs.list(limit=10_000)) == before, "a refused run was stored"


@pytest.mark.req("003-22")
def test_a_configuration_has_exactly_thirteen_fields(rt: Runtime) -> None:
    assert config_of(rt, submit(rt).run_id).keys() == FULL.keys()
    with pytest.raises(ContractInvalid) as error:
        submit(rt, {"maxFiles": 3, "profile": "fast", "seed": 1})
    assert [problem.field for problem in error.value.problems] == ["maxFiles", "seed", "profile"]


@pytest.mark.req("003-65")
def test_the_profile_full_has_the_strict_values(rt: Runtime) -> None:
    assert config_of(rt, submit(rt, {"profile": "full"}).run_id) == FULL
    assert config_of(rt, submit(rt).run_id) == FULL


CI = {
    "lightValidationMode": ("003-66", "off"),
    "heavyValidationMode": ("003-67", "off"),
    "maxRuntimeCorrectionAttempts": ("003-68", 0),
    "maxHeavyCorrectionAttempts": ("003-69", 0),
    "correctionPolicyMode": ("003-70", "warn"),
    "correctionConvergenceMode": ("003-71", "warn"),
    "plannerTimeoutMs": ("003-72", 5_000),
}
SMOKE = {
    "lightValidationMode": ("003-73", "warn"),
    "heavyValidationMode": ("003-74", "warn"),
    "maxRuntimeCorrectionAttempts": ("003-75", 1),
    "maxHeavyCorrectionAttempts": ("003-76", 1),
    "correctionPolicyMode": ("003-77", "warn"),
    "correctionConvergenceMode": ("003-78", "warn"),
    "plannerTimeoutMs": ("003-79", 10_000),
}


@pytest.mark.parametrize(
    ("profile", "name", "expected"),
    [
        pytest.param(profile, name, value, marks=pytest.mark.req(row))
        for profile, preset in (("ci", CI), ("smoke", SMOKE))
        for name, (row, value) in preset.items()
    ],
)
def test_a_profile_sets_its_fields(rt: Runtime, profile: str, name: str, expected: Any) -> None:
    # No variable changes a profile that was asked for by name.
    environ = {variable: str(value).lower() for variable, value in VARIABLES.values()}
    environ |= {"AGENT_OPTIMIZATION_MAX_CORRECTIONS": "3", "AGENT_HEAVY_VALIDATION_MODE": "enforce"}
    found = config_of(rt, submit(rt, {"profile": profile}, **environ).run_id)
    assert found[name] == expected
    preset = CI if profile == "ci" else SMOKE
    others = {key: FULL[key] for key in FULL.keys() - preset.keys() - {"profile"}}
    assert {key: found[key] for key in others} == others


@pytest.mark.req("003-58", "003-59", "003-60", "003-63", "003-64")
@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_fills_a_field_that_nothing_else_sets(rt: Runtime, name: str) -> None:
    variable, value = VARIABLES[name]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    filled = metadata(rt.runs, submit(rt, **{variable: text}).run_id)
    assert filled["effectiveExecutionConfig"] == {**FULL, name: value}
    assert filled["executionContractFallbackUsed"] is True
    assert filled["executionContractFallbackFields"] == [name]

    asked = metadata(rt.runs, submit(rt, {name: FULL[name]}, **{variable: text}).run_id)
    assert asked["effectiveExecutionConfig"] == FULL
    assert asked["executionContractFallbackUsed"] is False
    assert asked["executionContractFallbackFields"] == []

    unset = metadata(rt.runs, submit(rt, **{variable: ""}).run_id)
    assert unset["executionContractFallbackFields"] == []


@pytest.mark.req("003-32", "003-33", "003-64")
def test_fallback_names_exactly_the_fields_taken_from_the_environment(rt: Runtime) -> None:
    environ = {variable: str(value).lower() for variable, value in VARIABLES.values()}
    run = submit(rt, {"maxFilesPerStep": 3}, **environ, AGENT_RUNTIME_MAX_CORRECTIONS="4")
    found = metadata(rt.runs, run.run_id)
    assert found["executionContractFallbackFields"] == sorted(set(VARIABLES) - {"maxFilesPerStep"})
    # Of two names for one field, the first that is set counts.
    assert found["effectiveExecutionConfig"]["maxRuntimeCorrectionAttempts"] == 2
    second = submit(rt, AGENT_RUNTIME_MAX_CORRECTIONS="4")
    assert config_of(rt, second.run_id)["maxRuntimeCorrectionAttempts"] == 4


def test_a_variable_that_is_out_of_range_is_refused_by_its_name(rt: Runtime) -> None:
    with pytest.raises(ContractInvalid, match="AGENT_FS_MAX_FILES_PER_STEP"):
        submit(rt, AGENT_FS_MAX_FILES_PER_STEP="101")
    with pytest.raises(ContractInvalid, match="AGENT_FS_ALLOW_ENV_MUTATION"):
        submit(rt, AGENT_FS_ALLOW_ENV_MUTATION="yes")


@pytest.mark.req("003-80")
def test_a_field_beats_a_profile_and_a_profile_beats_the_environment(rt: Runtime) -> None:
    environ = {"AGENT_LIGHT_VALIDATION_MODE": "warn", "DEEPRUN_PLANNER_TIMEOUT_MS": "7000"}
    run = submit(rt, {"profile": "ci", "plannerTimeoutMs": 6_000}, **environ)
    found = metadata(rt.runs, run.run_id)
    assert found["effectiveExecutionConfig"]["lightValidationMode"] == "off"
    assert found["effectiveExecutionConfig"]["plannerTimeoutMs"] == 6_000
    assert found["executionContractFallbackUsed"] is False
    full = metadata(rt.runs, submit(rt, {"profile": "full"}, **environ).run_id)
    assert full["effectiveExecutionConfig"] == FULL


@pytest.mark.req("003-1", "003-27", "003-28", "003-29", "003-30", "003-31", "003-32", "003-33")
def test_a_run_has_exactly_the_seven_keys(rt: Runtime) -> None:
    found = metadata(rt.runs, submit(rt).run_id)
    assert found.keys() == KEYS
    assert found["executionContractSchemaVersion"] == 1
    assert found["executionContractFallbackUsed"] is False
    assert found["executionContractFallbackFields"] == []


@pytest.mark.req("003-34", "003-35")
def test_the_effective_configuration_is_the_snapshot_and_both_copies_agree(rt: Runtime) -> None:
    found = metadata(rt.runs, submit(rt, {"maxFilesPerStep": 4}).run_id)
    assert found["effectiveExecutionConfig"] == {**FULL, "maxFilesPerStep": 4}
    assert found["executionConfig"] == found["effectiveExecutionConfig"]


@pytest.mark.req("003-8", "003-36", "003-37", "003-38")
@pytest.mark.req("003-39", "003-40", "003-41", "003-42", "003-43")
def test_the_material_is_closed(rt: Runtime) -> None:
    found = metadata(rt.runs, submit(rt, {"profile": "smoke"}).run_id)
    assert found["executionContractMaterial"] == {
        "executionContractSchemaVersion": 1,
        "normalizedExecutionConfig": found["effectiveExecutionConfig"],
        "determinismPolicyVersion": 1,
        "plannerPolicyVersion": 1,
        "correctionRecipeVersion": 1,
        "validationPolicyVersion": 1,
        "randomnessSeed": "forbidden:no-random-branching",
    }


@pytest.mark.req("003-44", "003-45", "003-55")
@pytest.mark.parametrize(
    ("profile", "golden"),
    [
        ("full", "eaa65ae6e4c8366fb3b20b76295914499fbe5f03f5e0c9a1b294d015badc7868"),
        ("ci", "fc3f86dbbd662d3a78b6ce9a750603a313ff900b17b4786476481bb8f70ce2e4"),
        ("smoke", "26a946c01889648e03013e7f2f4659b7aec0ad9aea5544701b6d7575e92c27aa"),
    ],
)
def test_the_hash_is_the_golden_one(rt: Runtime, profile: str, golden: str) -> None:
    found = metadata(rt.runs, submit(rt, {"profile": profile}).run_id)
    assert found["executionContractHash"] == golden
    # Computed here without the product: sorted keys, no white space, UTF-8.
    material = found["executionContractMaterial"]
    text = json.dumps(material, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == golden


@pytest.mark.req("003-47")
def test_every_field_that_a_run_branches_on_changes_the_hash(rt: Runtime) -> None:
    hashes = {metadata(rt.runs, submit(rt).run_id)["executionContractHash"]}
    for name, (permitted, _refused) in FIELDS.items():
        for value in permitted:
            if name not in ("schemaVersion", "profile") and value != FULL[name]:
                run = submit(rt, {name: value})
                found = metadata(rt.runs, run.run_id)["executionContractHash"]
                assert found not in hashes, name
                hashes.add(found)


@pytest.mark.req("003-56")
def test_command_line_and_library_resolve_alike(rt: Runtime, tmp_path: Path) -> None:
    from acceptance.terminal import Terminal

    from .runs_project import work_file

    file = tmp_path / "work.yaml"
    file.write_text(work_file())
    said = Terminal(rt.settings.root).json(
        "runs", "submit", str(file), "--profile", "ci", "--set", "maxFilesPerStep=9"
    )
    assert said.code == 0, said
    other = submit(rt, {"profile": "ci", "maxFilesPerStep": 9})
    shown = rt.runs.status(other.run_id)["executionContract"]
    assert said.json["executionContract"] == shown


def test_a_mistake_in_a_work_file_is_named_with_its_file(rt: Runtime, tmp_path: Path):
    before = rt.runs.list(limit=1_000)
    wrong = tmp_path / "work.yaml"
    cases = [
        (b"items: [{id: x, agent_id: agent-1, descripton: d}]", f"{wrong}:1:"),
        (b"items: [{id: x, agent_id: agent-1, description: caf\xe9}]", "save it as UTF-8"),
    ]
    for content, said in cases:
        wrong.write_bytes(content)
        with pytest.raises(ContractInvalid) as caught:
            rt.runs.submit(wrong)
        assert said in str(caught.value)
    with pytest.raises(ContractInvalid, match="cannot be read"):
        rt.runs.submit(tmp_path / "none.yaml")
    with pytest.raises(ContractInvalid, match="name of a file"):
        rt.runs.submit("work.yaml")
    assert rt.runs.list(limit=1_000) == before


def test_a_run_that_could_never_end_well_is_not_submitted(rt: Runtime):
    """The work file is sealed: after a submission only a new run could repair it."""
    before = rt.runs.list(limit=1_000)
    cases: list[tuple[str, str]] = [
        (work_file(item(agent_id="agent-9")), "agents/agent-9.yaml"),
        (work_file(corrector="agent-8"), "agents/agent-8.yaml"),
        (work_file(light=[{"id": "l", "tool": "shel", "stdin": "true"}]), "no tool shel"),
        (
            work_file(heavy=[{"id": "t", "tool": "shell", "stdin": "true", "timeout": "5x"}]),
            "run.heavy[0].timeout",
        ),
        (
            work_file(heavy=[{"id": "t", "tool": "shell", "set": {"sandbox.foo": 1}}]),
            "run.heavy[0].sandbox.foo",
        ),
        (work_file(heavy=[{"id": "t", "tool": "shell", "stdin": "true"}] * 2), "run.heavy[1].id"),
    ]
    for source, said in cases:
        with pytest.raises((ContractInvalid, Refused)) as caught:
            rt.runs.submit(source)
        assert said in str(caught.value)
    assert rt.runs.list(limit=1_000) == before


@pytest.mark.req("003-46")
def test_the_elements_of_an_array_keep_their_order_in_a_hash(rt: Runtime) -> None:
    """The plan of a run is hashed with the same canonical JSON as its contract, and has arrays."""

    def plan_hash(*names: str, keys: int = 1) -> str | None:
        items = [dict(list(item(id=name).items())[::keys]) for name in names]
        run = rt.runs.submit(work_file(*items), config={"profile": "ci"}, environ={})
        rt.runs.worker().drain()
        return rt.runs.get(run.run_id).plan_sha256

    first = plan_hash("a", "b")
    assert first is not None
    assert plan_hash("a", "b", keys=-1) == first  # the order of keys is not in the hash
    assert plan_hash("b", "a") != first
