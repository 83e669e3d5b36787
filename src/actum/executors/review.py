"""The review gate: answers every question of the contract's list by tests, with line numbers.

The verdict is yes only if every answer is. The gate does not decide who may run an executor. It
does not trust the file: it reads the file as text, and only a confined child runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import Refused
from actum.executors import declare, runs
from actum.executors.lint import lint
from actum.executors.model import Declaration
from actum.executors.pool import Pool
from actum.executors.purity_probe import Findings, probe, usable_samples, worlds
from actum.executors.verdicts import Check, Review, contract_sha256
from actum.value import value

MOST_SOURCE_BYTES = 256 << 10
#: The remark of a question that only a sample of the executor can ask.
NOT_ASKED = "not asked: no sample promises None"


@value
class History:
    """Earlier verdicts of the project, for the questions that compare."""

    elsewhere: str = ""  #: where another file has the same id
    approved_of_id: Review | None = None  #: newest approval of the id
    approved_of_file: Review | None = None  #: newest approval of a file of this name


#: Returns the history of an executor id.
LookUp = Callable[[str], History]


def _nothing(_executor_id: str) -> History:
    return History()


def examine(
    source: bytes, *, file: str, by: str, at: datetime, look_up: LookUp = _nothing
) -> Review:
    """Run every check. Never raises because of the file's content."""
    pools = list(worlds())
    try:
        declared, checks = _answers(source, look_up, pools)
    finally:
        for pool in pools:
            pool.close()
    return Review(
        file=file,
        source_sha256=sha256_bytes(source),
        declared=declared,
        checks=tuple(checks),
        by=by,
        at=at,
        contract=contract_sha256(),
    )


def _answers(
    source: bytes, look_up: LookUp, pools: Sequence[Pool]
) -> tuple[Declaration | None, list[Check]]:
    checks = [_size(source), Check(name="source is pure", objections=_lint(source))]
    if not checks[0].passed:
        return None, checks
    try:
        code = runs.compile_source(pools[0], source)
        description = runs.describe(pools[0], code)
    except Refused as refusal:
        return None, [*checks, Check(name="it can be loaded", objections=(refusal.message,))]
    said = declare.objections(description)
    checks += [_named(name, problems) for name, problems in said.items()]
    checks.append(_documented(description))
    if any(said.values()):
        return None, checks
    declared = declare.declaration(description)
    checks += _compared(declared, source, look_up(declared.executor_id))
    samples, problems = usable_samples(description.get("samples"))
    checks.append(Check(name="samples are usable", objections=tuple(problems)))
    checks += _tried(source, declared, samples, pools)
    return declared, checks


def _size(source: bytes) -> Check:
    over = len(source) > MOST_SOURCE_BYTES
    text = f"the file has {len(source)} bytes; at most {MOST_SOURCE_BYTES} are read"
    return Check(name="source can be read", objections=(text,) if over else ())


def _lint(source: bytes) -> tuple[str, ...]:
    if len(source) > MOST_SOURCE_BYTES:
        return ()
    return tuple(str(objection) for objection in lint(source))


_QUESTIONS = {
    "class": "there is one executor class",
    "executor_id": "executor_id is present and well formed",
    "version": "version is X.Y.Z",
    "capabilities": "capabilities are declared in upper case",
    "limits": "limits are present, all four, as whole numbers",
    "execute": "execute(req) is implemented",
}


def _named(name: str, problems: Iterable[str]) -> Check:
    return Check(name=_QUESTIONS[name], objections=tuple(problems))


def _documented(description: Mapping[str, Any]) -> Check:
    missing = () if description.get("documented") else ("the file has no docstring",)
    return Check(name="it says what it is for", objections=missing)


def _compared(declared: Declaration, source: bytes, history: History) -> list[Check]:
    taken: tuple[str, ...] = ()
    if history.elsewhere:
        taken = (f"executor_id {declared.executor_id} is taken by {history.elsewhere}",)
    former = history.approved_of_file
    renamed: tuple[str, ...] = ()
    if former and former.declared and former.declared.executor_id != declared.executor_id:
        was = former.declared.executor_id
        renamed = (f"it was approved as {was}; an id never changes, so use a new file",)
    known = history.approved_of_id
    stale: tuple[str, ...] = ()
    other_code = known is not None and known.source_sha256 != sha256_bytes(source)
    if other_code and known and known.declared and known.declared.version == declared.version:
        stale = (f"version {declared.version} was approved with other code; raise it",)
    return [
        Check(name="executor_id is unique", objections=taken),
        Check(name="executor_id is the one this file had", objections=renamed),
        Check(name="version tells this code from other code", objections=stale),
    ]


def _tried(
    source: bytes,
    declared: Declaration,
    samples: Sequence[Mapping[str, Json]],
    pools: Sequence[Pool],
) -> list[Check]:
    try:
        found = probe(source, declared, samples, pools)
    except Refused as refusal:
        return [Check(name="it can be tried", objections=(refusal.message,))]
    return list(_verdicts(found, samples))


def _verdicts(found: Findings, samples: Sequence[Mapping[str, Json]]) -> Iterable[Check]:
    compared = f"{found.compared} runs compared, {len(samples)} samples of its own"
    nothing = sum("output" in sample and sample["output"] is None for sample in samples)
    yield Check(name="it is deterministic", objections=found.unequal, remark=compared)
    yield Check(name="it has no effects and no surroundings", objections=found.impure)
    yield Check(name="its attributes do not change", objections=found.changed)
    yield Check(name="it answers within its timeout", objections=found.slow)
    yield Check(
        name="it returns None when there is no output",
        objections=found.promises,
        remark=f"asked by {nothing} of its samples" if nothing else NOT_ASKED,
    )
    yield Check(name="it keeps secrets", objections=found.leaks)
