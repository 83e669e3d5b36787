"""Files that an adapter brings along: there, exact, and nobody's to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from actum.adapters import kinds
from actum.contract.call import Call, Plan
from actum.contract.model import Contract
from actum.errors import Fault, Refused
from actum.registry.model import AdapterKind, Entry
from actum.runners.base import require_proof
from hostile.jail import Jail

Provide = Callable[[dict[str, bytes]], None]

DRIVER = b"print('driver')\x00\xff\n"
SPOIL = """
cd /run/actum
for act in 'echo x >driver' 'echo x >>driver' 'rm driver' 'mv driver other' 'ln driver hard' \
    'chmod 666 driver' 'chmod 777 .' 'touch new' 'mkdir sub' 'mv /run/actum /run/elsewhere'; do
  (eval "$act") 2>/dev/null && echo "done: $act"
done
cat driver
"""


@pytest.fixture
def provide(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> Provide:
    """Every call of a cli adapter brings these files along."""
    build = kinds._BUILDERS[AdapterKind.CLI]

    def with_files(files: dict[str, bytes]) -> None:
        def built(contract: Contract, entry: Entry) -> Call:
            return replace(build(contract, entry), provided=files)

        monkeypatch.setitem(kinds._BUILDERS, AdapterKind.CLI, built)  # type: ignore[misc]
        # What an adapter brings follows from its entry. Here the same entry brings something else.
        jail.runtime.services.decision_cache.kept.clear()

    return with_files


def test_what_is_provided_is_there_byte_for_byte(jail: Jail, provide: Provide) -> None:
    provide({"driver": DRIVER, "table.json": b"{}"})
    result = jail.sh("ls /run/actum; od -An -c /run/actum/driver | tr -d ' \\n'")
    assert jail.said(result).split("\n")[:2] == ["driver", "table.json"]
    assert jail.said(result).endswith("print('driver')\\0377\\n")


def test_a_tool_cannot_change_what_is_provided(jail: Jail, provide: Provide) -> None:
    provide({"driver": b"ours\n"})
    assert jail.said(jail.sh(SPOIL)) == "ours"
    copy = jail.work / "copy"
    copy.mkdir()
    (copy / "driver").write_text("ours\n")
    assert "done: echo x >driver" in jail.outside(SPOIL.replace("/run/actum", str(copy)))


def test_folders_are_provided_with_their_files_and_are_nobodys_to_change(
    jail: Jail, provide: Provide
) -> None:
    provide({"a/b/one": b"1", "a/two": b"2", "run": b"#!/bin/sh\necho ran\n"})
    spoil = "echo x >>a/two; rm a/b/one; touch a/new; mkdir a/b/c; mv a other"
    result = jail.sh(f"cd /run/actum; ({spoil}) 2>/dev/null; cat a/b/one a/two; ./run; ls a")
    assert jail.said(result).split() == ["12ran", "b", "two"]


def test_megabytes_are_provided_too(jail: Jail, provide: Provide) -> None:
    provide({"large": b"x" * 8_000_000})
    assert jail.said(jail.sh("wc -c </run/actum/large")) == "8000000"


@pytest.mark.parametrize("name", ["../up", "a/../../up", "/etc/passwd", "a//b", "a/", ".", ""])
def test_a_name_that_leads_elsewhere_starts_nothing(
    jail: Jail, provide: Provide, name: str
) -> None:
    provide({name: b"x"})
    with pytest.raises(Fault):
        jail.sh("true")


def test_nothing_is_provided_to_the_next_one(jail: Jail, provide: Provide) -> None:
    provide({"driver": DRIVER})
    assert jail.said(jail.sh("ls /run/actum")) == "driver"
    provide({})
    assert jail.said(jail.sh("ls -d /run/actum 2>/dev/null || echo absent")) == "absent"


def test_an_interpreter_that_waits_has_the_files_of_its_own_plan(
    jail: Jail, provide: Provide
) -> None:
    said = []
    for content in (b"one", b"one", b"two"):
        provide({"driver": content})
        said.append(jail.runtime.python("print(open('/run/actum/driver').read())"))
    assert [jail.said(result) for result in said] == ["one", "one", "two"]


def test_other_files_are_another_call(jail: Jail, provide: Provide) -> None:
    provide({"driver": DRIVER})
    plans: list[Plan] = []
    runner = next(iter(jail.runtime.services.runners.values()))
    real = runner.run
    try:
        runner.run = lambda plan, *rest: plans.append(plan) or real(plan, *rest)  # type: ignore[method-assign, func-returns-value]
        jail.sh("true")
    finally:
        del runner.run
    (plan,) = plans
    require_proof(plan)
    for other in ({"driver": DRIVER + b"#"}, {"other": DRIVER}, {}):
        with pytest.raises(Refused) as refused:
            require_proof(replace(plan, provided=other))
        assert refused.value.code == "PROOF_INVALID"
