"""`actum replay`: carry out a recorded execution again, and compare.

Records hold digests, not the request. So the caller brings the contract, and it must be the same
request. It is carried out as a new execution, in a session of its own (so that no cache answers),
and compared with the signed record: identical, diverged and where, or not replayable and why.
Nothing counts as "about the same".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from actum.contract.contract_json import identity_sha256
from actum.contract.model import Contract, Json
from actum.evidence.executions import KnownExecution
from actum.execution.result import Result
from actum.value import replace, value


class Comparison(StrEnum):
    IDENTICAL = "identical"
    DIVERGED = "diverged"
    NOT_REPLAYABLE = "not replayable"


@value
class Replay:
    """The verdict and its reasons."""

    verdict: Comparison
    execution_id: str  #: the recorded one
    differs: tuple[str, ...] = ()  #: where, each with the values then and now
    why: str = ""
    result: Result | None = None  #: of the run that was compared

    def document(self) -> dict[str, Json]:
        return {
            "verdict": self.verdict.value,
            "execution_id": self.execution_id,
            "differs": list(self.differs),
            "why": self.why,
            "result": None if self.result is None else self.result.document(),
        }


def replay(
    known: KnownExecution, contract: Contract, carry_out: Callable[[Contract], Result]
) -> Replay:
    """Carry `contract` out again and compare with the record `known`."""
    if reason := _obstacle(known, contract):
        return Replay(
            verdict=Comparison.NOT_REPLAYABLE, execution_id=known.execution_id, why=reason
        )
    fresh = str(uuid.uuid4())
    result = carry_out(replace(contract, execution_id=fresh, session=f"replay-{fresh}"))
    if result.result is None:
        codes = ", ".join(result.reason_codes)
        return Replay(
            verdict=Comparison.NOT_REPLAYABLE,
            execution_id=known.execution_id,
            why=f"it is refused now ({codes})",
            result=result,
        )
    assert known.result is not None  # noqa: S101 -- an obstacle otherwise
    differs = tuple(_differences(known.result, result.without_output()))
    return Replay(
        verdict=Comparison.DIVERGED if differs else Comparison.IDENTICAL,
        execution_id=known.execution_id,
        differs=differs,
        result=result,
    )


def _obstacle(known: KnownExecution, contract: Contract) -> str:
    """Why the execution cannot be replayed; empty if it can."""
    if known.outcome is None:
        return "it has not ended"
    if known.result is None:
        return "it was interrupted, so what it said is not known"
    if known.result["result"] is None:
        return f"nothing ran then ({', '.join(known.result['reason_codes'])})"
    if known.identity_sha256 != identity_sha256(contract):
        return "the contract is not the one that was carried out"
    if known.result["egress"]:
        return "it spoke with the network, and what answered then is not on record"
    return ""


def _differences(then: Mapping[str, Json], now: Mapping[str, Json]) -> Iterator[str]:
    for name in ("adapter_id", "outcome"):
        if then[name] != now[name]:
            yield f"{name}: {then[name]} then, {now[name]} now"
    if then["result"]["exit_code"] != now["result"]["exit_code"]:
        yield f"exit_code: {then['result']['exit_code']} then, {now['result']['exit_code']} now"
    for name in ("stdout", "stderr"):
        before, after = then["streams"][name], now["streams"][name]
        if before["sha256"] != after["sha256"]:
            yield f"{name}: {before['bytes']} bytes then, {after['bytes']} now, not the same"
    before, after = _files(then), _files(now)
    for path in sorted(before.keys() | after.keys()):
        if path not in after:
            yield f"file {path}: not there now"
        elif path not in before:
            yield f"file {path}: not there then"
        elif before[path] != after[path]:
            yield f"file {path}: another content"


def _files(document: Mapping[str, Json]) -> dict[str, str]:
    return {
        # In results of older versions `type` is the kind.
        f"{item.get('kind') or item['type']} {item['path']}": item["sha256"]
        for item in document["result"]["artifacts"]
    }
