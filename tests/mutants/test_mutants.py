"""The table of mutations is true, and the part of it that `make test` runs is caught."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

_SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
mutants = SimpleNamespace(**runpy.run_path(str(_SCRIPTS / "mutants.py")))
conformance = SimpleNamespace(**runpy.run_path(str(_SCRIPTS / "conformance.py")))
TABLE = mutants.mutations()


@pytest.mark.parametrize("mutation", TABLE, ids=lambda each: each.name)
def test_a_mutation_can_be_applied(mutation: SimpleNamespace) -> None:
    intact = (mutants.ROOT / mutation.file).read_text(encoding="utf-8")
    assert mutation.breaks(intact) != intact
    assert mutation.tests
    assert mutation.rows
    assert not [row for row in mutation.rows if row not in conformance.requirement_rows()]
    for test in mutation.tests:
        assert (mutants.ROOT / test.partition("::")[0]).exists(), test


def test_each_mutation_has_a_name_of_its_own() -> None:
    names = [mutation.name for mutation in TABLE]
    assert len(set(names)) == len(names)


def test_a_row_without_a_mutation_says_why() -> None:
    without = mutants.rows_without()
    assert not [row for row in without if row not in conformance.requirement_rows()]
    assert not [row for row, why in without.items() if len(why.split()) < 5]
    assert not set(without) & {row for mutation in TABLE for row in mutation.rows}


@pytest.mark.sandbox
def test_a_part_of_the_table_is_caught() -> None:
    chosen = [mutation for mutation in TABLE if mutation.in_suite]
    verdicts = list(mutants.run(chosen))
    assert [verdict.word for verdict in verdicts] == ["caught"] * len(chosen), verdicts
