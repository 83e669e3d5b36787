"""A changed decision bumps a version, and no decision reads a clock, the environment or chance."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from actum.runs import policy_surface
from actum.runs.policy_surface import DECIDES, code_of, unrecorded

SOURCE = Path(policy_surface.__file__).parents[1]
#: Modules whose answers depend on something else than their arguments.
IMPURE = {"random", "secrets", "time", "datetime", "os", "uuid", "threading", "subprocess"}


def test_a_changed_decision_bumps_its_version() -> None:
    assert unrecorded() == (), policy_surface.__doc__


def test_every_module_of_the_contract_is_covered() -> None:
    modules = {f"runs/contract/{path.name}" for path in (SOURCE / "runs/contract").glob("*.py")}
    #: These decide nothing: a signature, and words for people.
    others = {f"runs/contract/{name}.py" for name in ("__init__", "seal", "difference")}
    assert modules - others == {name for name in DECIDES if name.startswith("runs/contract/")}


@pytest.mark.parametrize("module", DECIDES)
def test_no_decision_reads_a_clock_the_environment_or_chance(module: str) -> None:
    imported = set()
    for node in ast.walk(code_of(SOURCE / module)):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).split(".")[0])
    allowed = {"os"} if module == "work/step_caps.py" else set()  # encodes names of files
    assert not imported & (IMPURE - allowed)
