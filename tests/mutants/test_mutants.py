"""The table of mutations is true, and the part of it that `make test` runs is caught."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

_TESTS = Path(__file__).resolve().parents[1]
_SCRIPTS = _TESTS.parent / "scripts"
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


def test_each_row_that_a_test_names_has_a_mutation_or_a_reason(
    request: pytest.FixtureRequest,
) -> None:
    known = {row for mutation in TABLE for row in mutation.rows} | set(mutants.rows_without())
    lonely = {
        f"{row}: {item.nodeid}"
        for item in request.session.items
        for row in conformance.rows_named_by(item)
        if row not in known
    }
    assert lonely == set()


def test_each_row_is_named_by_the_tests_of_its_mutations(request: pytest.FixtureRequest) -> None:
    collected = _collected(request.session)
    wrong = []
    for mutation in TABLE:
        if not all(test.partition("::")[0] in collected for test in mutation.tests):
            continue  # only a part of the suite was collected
        chosen = {
            test: [
                rows
                for name, rows in collected[test.partition("::")[0]].items()
                if name == test or name.startswith((f"{test}[", f"{test}::"))
            ]
            for test in mutation.tests
        }
        wrong += [f"{mutation.name}: there is no {test}" for test in chosen if not chosen[test]]
        named = {row for each in chosen.values() for rows in each for row in rows}
        wrong += [f"{mutation.name}: no test names {row}" for row in {*mutation.rows} - named]
    assert wrong == []


def test_each_row_is_named_by_a_test_or_said_to_be_unproven(request: pytest.FixtureRequest) -> None:
    unproven = mutants.rows_unproven()
    rows = conformance.requirement_rows()
    assert not [row for row in unproven if row not in rows]
    assert not [row for row, why in unproven.items() if len(why.split()) < 5]
    files = {str(file.relative_to(mutants.ROOT)) for file in _TESTS.rglob("test_*.py")}
    collected = _collected(request.session)
    if files <= set(collected):  # the whole suite was collected, not a part of it
        named = {row for tests in collected.values() for each in tests.values() for row in each}
        assert [row for row in rows if row not in named and row not in unproven] == []


def _collected(session: pytest.Session) -> dict[str, dict[str, tuple[str, ...]]]:
    """File -> test -> the rows that it names."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for item in session.items:
        tests = found.setdefault(item.nodeid.partition("::")[0], {})
        tests[item.nodeid] = conformance.rows_named_by(item)
    return found


@pytest.mark.sandbox
def test_a_part_of_the_table_is_caught() -> None:
    chosen = [mutation for mutation in TABLE if mutation.in_suite]
    # This run of the suite is the control: it runs the same tests on the intact product.
    verdicts = list(mutants.run(chosen, control=False))
    assert [verdict.word for verdict in verdicts] == ["caught"] * len(chosen), verdicts
