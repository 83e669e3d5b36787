"""`actum replay`: an execution once more, compared with its record. Exits 0 if identical."""

from __future__ import annotations

from typing import Any

import click

from actum.doors.cli import exit_codes, say, words
from actum.doors.cli.asked import asked, require_sense
from actum.doors.cli.asking import asking_options


@click.command("replay", cls=words.Command, short_help="Carry out again, and compare.")
@click.argument("execution_id", metavar="ID")
@asking_options
def command(*, execution_id: str, **given: Any) -> int:
    """Carry out what execution ID was asked, and say whether it is the same.

    Records hold digests, so give the request again, as for `actum exec`: the TOOL and its options
    behind the ID, or -f CONTRACT. The verdict is identical, diverged (and where) or not replayable
    (and why). What tools write, they write again.
    """
    require_sense(**given)
    with words.open_runtime() as runtime:
        found = runtime.replay(execution_id, asked(runtime, **given))
    if words.wants_json():
        say.document(found.document())
    else:
        say.line(f"{found.verdict}{f': {found.why}' if found.why else ''}")
        for line in found.differs:
            say.line(f"  {line}")
    return _CODES[found.verdict.value]


_CODES = {
    "identical": exit_codes.SUCCESS,
    "diverged": exit_codes.FAILED,
    "not replayable": exit_codes.REFUSED,
}
