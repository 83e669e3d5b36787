"""Tests whether an executor is pure: runs the same samples in different environments.

Varied: the process, the hash seed, the address layout, the time zone, the locale, the order of keys
in the payload, the trace id and the time of the request. A difference in any answer, or any
forbidden call, is a finding. Equal answers are evidence, not proof; the finding states their
number.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from actum.contract.canonical import NotCanonical
from actum.contract.model import Json
from actum.contract.outcome import ActionStatus
from actum.executors import runs
from actum.executors.model import Declaration
from actum.executors.payload_secrets import leaks
from actum.executors.pool import Pool, Surroundings
from actum.executors.reasons import Reason
from actum.executors.shape import Snapshot, TooDeep
from actum.value import value

WORLDS = (
    Surroundings(),
    Surroundings(hash_seed=1, time_zone="Asia/Tokyo", locale="C", fixed_layout=False),
    Surroundings(hash_seed=4_242, time_zone="America/New_York", locale="POSIX", fixed_layout=False),
)
_TIMES_PER_WORLD = 2

#: Run besides an executor's own samples, to cover unexpected input.
COMMON: tuple[dict[str, Json], ...] = (
    {},
    {"text": "a b", "value": 1, "items": [3, 1, 2], "flag": True, "nothing": None},
    {"z": {"y": {"x": [{"w": 0.5}]}}, "a": "é\u0000€𝄞"},
)
_MOST_SAMPLES = 16


@value
class Findings:
    compared: int
    unequal: tuple[str, ...]  #: answers differ
    impure: tuple[str, ...]  #: a forbidden call
    changed: tuple[str, ...]  #: an attribute changed after the declaration
    promises: tuple[str, ...]  #: the output differs from the sample's own
    leaks: tuple[str, ...]  #: a secret of the payload is in the output
    slow: tuple[str, ...]


def probe(
    source: bytes,
    declared: Declaration,
    samples: Sequence[Mapping[str, Json]],
    worlds: Sequence[Pool],
) -> Findings:
    """Run every sample in every environment and compare."""
    found: dict[str, list[str]] = {
        name: [] for name in ("unequal", "impure", "changed", "promises", "leaks", "slow")
    }
    codes = [runs.compile_source(pool, source) for pool in worlds]
    compared = 0
    for name, sample in _named(samples):
        answers = []
        for pool, code in zip(worlds, codes, strict=True):
            for again in range(_TIMES_PER_WORLD):
                payload = _reversed(sample["payload"]) if again % 2 else sample["payload"]
                answers.append(_ask(pool, code, declared, payload))
        compared += len(answers)
        _judge(name, sample, answers, found)
    return Findings(compared=compared, **{key: tuple(value) for key, value in found.items()})


def worlds() -> Iterator[Pool]:
    for surroundings in WORLDS:
        yield Pool(ready=2, surroundings=surroundings)


def _named(samples: Sequence[Mapping[str, Json]]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    for index, sample in enumerate(samples[:_MOST_SAMPLES]):
        yield f"samples[{index}]", sample
    for index, payload in enumerate(COMMON):
        yield f"common sample {index}", {"payload": payload}


def _ask(pool: Pool, code: bytes, declared: Declaration, payload: Json) -> runs.Ran:
    snapshot = Snapshot.of(payload)
    frame = runs.call_frame(
        code,
        declared,
        action=declared.executor_id,
        payload=snapshot.encoded,
        trace_id=str(uuid.uuid4()),
        at=datetime.now(UTC),
    )
    child, ran = runs.run(pool, frame, declared, declared.limits.timeout_ms / 1000)
    child.finish()
    pool.refill()
    return ran


def _judge(
    name: str,
    sample: Mapping[str, Json],
    answers: Sequence[runs.Ran],
    found: Mapping[str, list[str]],
) -> None:
    reasons = {ran.reason for ran in answers}
    digests = {(ran.status, ran.reason, _digest(ran)) for ran in answers}
    if Reason.POLICY_VIOLATION in reasons:
        found["impure"].append(f"{name}: it asked the kernel for something forbidden")
    elif Reason.EXECUTOR_CHANGED in reasons:
        found["changed"].append(f"{name}: it changed what it declared")
    elif Reason.EXECUTOR_TIMEOUT in reasons:
        found["slow"].append(f"{name}: it did not answer within its own timeout_ms")
    elif len(digests) > 1:
        found["unequal"].append(
            f"{name}: {len(digests)} different answers in {len(answers)} runs of the same input"
        )
    first = answers[0]
    if "output" in sample and not _is(first, sample["output"]):
        promised = "None" if sample["output"] is None else "the output it names"
        found["promises"].append(f"{name}: it did not return {promised}")
    if first.output is not None and leaks(dict(sample["payload"]), first.output.value):
        found["leaks"].append(f"{name}: a secret of the payload is in the output")


def _digest(ran: runs.Ran) -> str | None:
    return ran.output.digest if ran.output else None


def _is(ran: runs.Ran, promised: Json) -> bool:
    if ran.status is not ActionStatus.SUCCESS:
        return False
    return _digest(ran) == (None if promised is None else Snapshot.of(promised).digest)


def _reversed(payload: Json) -> Json:
    """The same value with the keys of every mapping in reverse order."""
    if isinstance(payload, dict):
        return {key: _reversed(payload[key]) for key in reversed(payload)}
    return [_reversed(item) for item in payload] if isinstance(payload, list) else payload


def usable_samples(samples: object) -> tuple[list[Mapping[str, Json]], list[str]]:
    """(samples, problems): they come from untrusted code."""
    usable: list[Mapping[str, Json]] = []
    problems: list[str] = []
    for index, sample in enumerate(samples if isinstance(samples, list) else []):
        fits = isinstance(sample, dict) and isinstance(sample.get("payload"), dict)
        if not fits or not set(sample) <= {"payload", "output"}:
            problems.append(
                f"samples[{index}] must be {{'payload': {{...}}}}, with 'output' or not"
            )
            continue
        try:
            for part in sample.values():
                Snapshot.of(part)
        except (NotCanonical, TooDeep):
            problems.append(f"samples[{index}] is not JSON")
            continue
        usable.append(sample)
    return usable, problems
