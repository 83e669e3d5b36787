"""A strike at the worst moment: the view is mounted, and the command has not heard of it yet.

The child waits there until its asker is gone, so no machine is too slow or too fast for the trial.
"""

from __future__ import annotations

from collections.abc import Sequence

from .lab import ITEM_RUN, Kind, Lab, hooks
from .strike import Blow, Signal, Target

KIND = Kind(ITEM_RUN, exclusive=False)


def strike_held_open(lab: Lab, number: Signal, broken: Sequence[str] = ()) -> list[str]:
    """What is wrong after the command was struck while its child waits."""
    unharmed = lab.unharmed(KIND)
    # Longer than its whole life: it waits by then.
    delay_s = 1.5 * unharmed.lives[Target.CHILD]
    blow = Blow(number, Target.COMMAND, delay_s, clock=Target.CHILD)
    lab.restore(unharmed.template)
    ended = lab.start(unharmed.words, blow, hooks(broken=["late-word", *broken]))
    assert ended.hit, ended.said
    committed, wrong = lab.judge(KIND, ended)
    return [*wrong, *(["it was committed"] if committed else [])]
