"""The matrix of strikes, and the seeded choice of trials from it."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .lab import COMMANDS, ITEM_RUN, REPLAY, UNDO, WORK, Kind, Lab
from .strike import Signal, Target

SOAK = os.environ.get("ACTUM_SOAK") == "1"
#: Struck runs of one engine by one user. Two engines and two users make 2,000 in a soak; else each
#: cell is struck once, by one of them.
RUNS = 500 if SOAK else 26
_ENGINES = ("overlay", "copy")
SEED = int(os.environ.get("ACTUM_STRIKE_SEED", "7"))
#: One trial to repeat, as a failure prints it.
ONLY = os.environ.get("ACTUM_STRIKE_TRIAL")

_WITH_CHILD = (Target.COMMAND, Target.CHILD, Target.BOTH, Target.SPAWNER)
_TARGETS: Mapping[str, Sequence[Target]] = {
    ITEM_RUN: _WITH_CHILD,
    WORK: _WITH_CHILD,
    UNDO: (Target.COMMAND,),
    REPLAY: (Target.GROUP, Target.AGAIN, Target.CHILD),
}


@dataclass(frozen=True)
class Cell:
    kind: Kind
    signal: Signal
    target: Target


@dataclass(frozen=True)
class Trial:
    cell: Cell
    share: float  #: of the unharmed life of the target, after which it is struck
    delay_s: float | None = None  #: instead of a share

    def name(self, engine: str, delay_s: float) -> str:
        cell = self.cell
        exclusive = "exclusive" if cell.kind.exclusive else "shared"
        words = (cell.kind.command, cell.signal, cell.target, engine, exclusive)
        return f"{'/'.join(words)}/{delay_s:.4f}"


def cells() -> list[Cell]:
    """Every cell. A terminal is closed for the command only: other targets have none."""
    return [
        Cell(Kind(command, exclusive), number, target)
        for command in COMMANDS
        for exclusive in (False, True)
        for number in Signal
        for target in _TARGETS[command]
        if number is not Signal.CLOSED or target in (Target.COMMAND, Target.GROUP)
    ]


def plan(lab: Lab, runs: int = RUNS) -> list[Trial]:
    """`runs` trials: cells in a random order, each once before one comes again, and the moments of
    each command and target spread over the whole life of the target."""
    if ONLY is not None:
        return _only(lab.engine)
    chance = random.Random(f"{SEED} {lab.engine} {os.geteuid() == 0}")
    chosen = [] if SOAK else share(lab.engine, root=os.geteuid() == 0)
    while len(chosen) < runs:
        some = cells()
        chance.shuffle(some)
        chosen += some[: runs - len(chosen)]
    groups: dict[tuple[str, Target], list[int]] = {}
    for number, cell in enumerate(chosen):
        groups.setdefault((cell.kind.command, cell.target), []).append(number)
    shares = {}
    for numbers in groups.values():
        chance.shuffle(numbers)
        for layer, number in enumerate(numbers):
            shares[number] = (layer + chance.random()) / len(numbers)
    return [Trial(cell, shares[number]) for number, cell in enumerate(chosen)]


def share(engine: str, *, root: bool) -> list[Cell]:
    """The part of all cells that one engine strikes as one user."""
    every = cells()
    random.Random(f"{SEED} shares").shuffle(every)
    return every[2 * _ENGINES.index(engine) + root :: 2 * len(_ENGINES)]


def _only(engine: str) -> list[Trial]:
    command, number, target, of_engine, exclusive, delay = str(ONLY).split("/")
    if of_engine != engine:
        return []
    kind = Kind(command, exclusive == "exclusive")
    return [Trial(Cell(kind, Signal(number), Target(target)), 0.0, float(delay))]
