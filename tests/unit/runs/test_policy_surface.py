"""A changed decision bumps a version, and no decision reads a clock, the environment or chance.

`policy_surface.json` holds, for each module that decides something about a run, the digest of its
code (without comments and docstrings), its constants, and the versions of the contract under which
both were recorded. To change a decision: bump the version that covers it, then record it with

    python tests/unit/runs/test_policy_surface.py
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from actum.runs.contract.material import VERSIONS

SOURCE = Path(__file__).resolve().parents[3] / "src" / "actum"
RECORD = Path(__file__).with_name("policy_surface.json")
#: Module -> the version that covers its decisions.
DECIDES = {
    "runs/contract/fields.py": "executionContractSchemaVersion",
    "runs/contract/resolve.py": "executionContractSchemaVersion",
    "runs/contract/material.py": "executionContractSchemaVersion",
    "runs/contract/check.py": "determinismPolicyVersion",
    "runs/run_status.py": "determinismPolicyVersion",
    "runs/decide.py": "correctionRecipeVersion",
    "runs/run_plan.py": "plannerPolicyVersion",
    "work/dag.py": "plannerPolicyVersion",
    "runs/validator_findings.py": "validationPolicyVersion",
    "work/step_caps.py": "validationPolicyVersion",
}
#: Modules whose answers depend on something else than their arguments.
IMPURE = {"random", "secrets", "time", "datetime", "os", "uuid", "threading", "subprocess"}


def code_of(module: str) -> ast.Module:
    tree = ast.parse((SOURCE / module).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            held = body[0].value
            if isinstance(held, ast.Constant) and isinstance(held.value, str):
                body[0] = ast.Pass()
    return tree


def surface() -> dict[str, Any]:
    found = {}
    for module, version in DECIDES.items():
        tree = code_of(module)
        constants = [
            target.id
            for node in tree.body
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name) and target.id.strip("_").isupper()
        ]
        digest = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
        found[module] = {
            "sha256": digest,
            "constants": sorted(constants),
            "covered_by": version,
            "version": VERSIONS[version],
        }
    return found


@pytest.mark.parametrize("module", DECIDES)
def test_a_changed_decision_bumps_its_version(module: str) -> None:
    recorded, now = json.loads(RECORD.read_text())[module], surface()[module]
    remedy = (
        f"{module} decides about runs and was changed. If its decisions differ, bump"
        f" {now['covered_by']} in runs/contract; then record it (see this file's docstring)."
    )
    assert sorted(recorded["constants"]) == now["constants"], remedy
    assert recorded["sha256"] == now["sha256"], remedy
    assert recorded["version"] == now["version"], "record the bumped version"


def test_every_module_of_the_contract_is_covered() -> None:
    modules = {f"runs/contract/{path.name}" for path in (SOURCE / "runs/contract").glob("*.py")}
    #: These decide nothing: a signature, and words for people.
    others = {f"runs/contract/{name}.py" for name in ("__init__", "seal", "difference")}
    assert modules - others == {name for name in DECIDES if name.startswith("runs/contract/")}


@pytest.mark.parametrize("module", DECIDES)
def test_no_decision_reads_a_clock_the_environment_or_chance(module: str) -> None:
    imported = set()
    for node in ast.walk(code_of(module)):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).split(".")[0])
    allowed = {"os"} if module == "work/step_caps.py" else set()  # encodes names of files
    assert not imported & (IMPURE - allowed)


if __name__ == "__main__":
    RECORD.write_text(json.dumps(surface(), indent=2) + "\n")
    sys.stdout.write(f"recorded {len(DECIDES)} modules\n")
