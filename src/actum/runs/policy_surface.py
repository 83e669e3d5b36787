"""Which code decides about runs, and under which version of the contract.

`policy_surface.json` holds, for each module that decides something about a run, the digest of its
code (without comments and docstrings), its constants, and the version that covers it. A decision
that was changed without its version would run under a contract that promises the old one: `actum
doctor` names it, and `tests/unit/runs/test_policy_surface.py` fails. After a change: bump the
version if decisions differ, then record the module with

    python -m actum.runs.policy_surface
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actum.runs.contract.material import VERSIONS

_SOURCE = Path(__file__).resolve().parents[1]
_RECORD = Path(__file__).with_suffix(".json")
#: Module -> the version that covers its decisions.
DECIDES: Mapping[str, str] = {
    "runs/contract/fields.py": "executionContractSchemaVersion",
    "runs/contract/resolve.py": "executionContractSchemaVersion",
    "runs/contract/material.py": "executionContractSchemaVersion",
    "runs/contract/check.py": "determinismPolicyVersion",
    "runs/run_status.py": "determinismPolicyVersion",
    "runs/decide.py": "correctionRecipeVersion",
    "runs/step_items.py": "correctionRecipeVersion",
    "runs/run_plan.py": "plannerPolicyVersion",
    "work/dag.py": "plannerPolicyVersion",
    "work/trials.py": "plannerPolicyVersion",
    "runs/validator_findings.py": "validationPolicyVersion",
    "work/step_caps.py": "validationPolicyVersion",
}


def unrecorded(source: Path = _SOURCE) -> tuple[str, ...]:
    """What differs from the record, one line for each module; empty if nothing does."""
    recorded = json.loads(_RECORD.read_text(encoding="utf-8"))
    found = [_difference(recorded.get(each), now) for each, now in surface(source).items()]
    lines = [
        f"{module}: {difference}"
        for module, difference in zip(DECIDES, found, strict=True)
        if difference is not None
    ]
    return (*lines, *(f"{module}: recorded, and gone" for module in recorded.keys() - DECIDES))


def surface(source: Path = _SOURCE) -> dict[str, dict[str, Any]]:
    found = {}
    for module, version in DECIDES.items():
        tree = code_of(source / module)
        found[module] = {
            "sha256": hashlib.sha256(repr(_plain(tree)).encode()).hexdigest(),
            "constants": sorted(_constants(tree)),
            "covered_by": version,
            "version": VERSIONS[version],
        }
    return found


def code_of(file: Path) -> ast.Module:
    """The code of a module without docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            held = body[0].value
            if isinstance(held, ast.Constant) and isinstance(held.value, str):
                body[0] = ast.Pass()
    return tree


def _difference(recorded: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str | None:
    if recorded is None:
        return "not recorded"
    new = sorted({*now["constants"]} ^ {*recorded["constants"]})
    if new:
        return f"its constants differ ({', '.join(new)}), and {now['covered_by']} does not say so"
    if now["sha256"] != recorded["sha256"]:
        return f"its code differs, and {now['covered_by']} does not say so"
    if (now["covered_by"], now["version"]) != (recorded["covered_by"], recorded["version"]):
        return f"{now['covered_by']} is {now['version']} now, which is not recorded"
    return None


def _constants(tree: ast.Module) -> list[str]:
    return [
        target.id
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id.strip("_").isupper()
    ]


def _plain(node: object) -> object:
    """A syntax tree as tuples. Leaves out what is empty: versions of Python differ in that."""
    if isinstance(node, ast.AST):
        fields = [(name, _plain(held)) for name, held in ast.iter_fields(node)]
        kept = [(name, held) for name, held in fields if held not in (None, ())]
        return (type(node).__name__, *kept)
    if isinstance(node, list):
        return tuple(_plain(each) for each in node)
    return node


if __name__ == "__main__":
    _RECORD.write_text(json.dumps(surface(), indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"recorded {len(DECIDES)} modules\n")
