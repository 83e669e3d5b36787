"""Runs trials: copy the project, start the command, strike it, judge what it left."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .cells import SEED, Trial
from .lab import Lab
from .strike import Blow

#: A run that ended before the strike is tried again with an earlier one.
_TRIES = 6
_NEXT_EVERY = 10


@dataclass
class Tally:
    """What came of the trials so far."""

    engine: str
    struck: int = 0
    cells: set[object] = field(default_factory=set)
    ends: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    lost: int = 0
    failures: list[str] = field(default_factory=list)

    def figure(self) -> str:
        user = "root" if os.geteuid() == 0 else "an ordinary user"
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        return (
            f"{self.struck} struck runs as {user} on {self.engine}, seed {SEED},"
            f" {len(self.cells)} cells: {ends}; {len(self.failures)} wrong, {self.lost} with losses"
        )


def sweep(lab: Lab, trials: Sequence[Trial], environment: Mapping[str, str] | None = None) -> Tally:
    tally = Tally(lab.engine)
    for number, trial in enumerate(trials):
        _try(lab, number, trial, tally, environment or {})
    return tally


def _try(lab: Lab, number: int, trial: Trial, tally: Tally, environment: Mapping[str, str]) -> None:
    cell = trial.cell
    unharmed = lab.unharmed(cell.kind)
    delay_s = trial.delay_s
    if delay_s is None:
        delay_s = trial.share * unharmed.lives[cell.target]
    for _ in range(_TRIES):
        lab.restore(unharmed.template)
        ended = lab.start(unharmed.words, Blow(cell.signal, cell.target, delay_s), environment)
        if ended.hit or trial.delay_s is not None:
            break
        tally.missed += 1
        # The one that was missed has shown how long the target lives now.
        delay_s = min(0.7 * delay_s, trial.share * ended.lives.get(cell.target, delay_s))
    committed, wrong = lab.judge(cell.kind, ended)
    if ended.hit:
        tally.struck += 1
        tally.cells.add(cell)
    if not wrong and number % _NEXT_EVERY == 0:
        wrong = lab.runs_next()
    after = unharmed.leads_to(committed) == unharmed.after
    end = "after" if after else "between commits" if committed else "before"
    tally.ends["unchanged" if unharmed.before == unharmed.after else end] += 1
    if wrong:
        tally.lost += any(each.startswith("LOST") for each in wrong)
        tally.failures.append(_told(lab.engine, trial.name(lab.engine, delay_s), wrong, ended.said))


def _told(engine: str, name: str, wrong: Sequence[str], said: str) -> str:
    runner = "" if os.geteuid() == 0 else "scripts/as-user env "
    file = f"tests/strikes/test_{engine}.py"
    again = f"{runner}ACTUM_STRIKE_TRIAL={name} .venv/bin/pytest {file}"
    lines = "\n    ".join(each[-800:] for each in wrong[:20])
    return f"{name} (seed {SEED})\n    {lines}\n    it said: {said[-500:]!r}\n    again: {again}\n"
