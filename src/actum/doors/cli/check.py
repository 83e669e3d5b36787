"""`actum check`: everything up to the start, unrecorded. Exits 0, or 3 if it would be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from actum.contract.model import Json
from actum.contract.parse import parse_contract
from actum.doors.cli import exit_codes, reply, say, words
from actum.doors.cli.asked import asked, require_sense
from actum.doors.cli.asking import asking_options

if TYPE_CHECKING:
    from actum.engine.pipeline import Forecast


@click.command("check", cls=words.Command, short_help="Would it run, and held by what?")
@asking_options
def command(**given: Any) -> int:
    """Say whether an execution would run, under which policy, and what would enforce it.

    Takes what `actum exec` takes. Nothing is started and nothing is recorded.
    """
    require_sense(**given)
    with words.open_runtime() as runtime:
        # Parsed here: a malformed contract that somebody only looked at is nothing to record.
        forecast = runtime.check(parse_contract(asked(runtime, **given)))
    if words.wants_json():
        say.document(_document(forecast))
    else:
        _tell(forecast)
    return exit_codes.REFUSED if forecast.violations else exit_codes.SUCCESS


def _document(forecast: Forecast) -> dict[str, Json]:
    from actum.contract.wire import contract_document
    from actum.value import as_dict

    return {
        "verdict": "REFUSED" if forecast.violations else "ALLOWED",
        "violations": [as_dict(violation) for violation in forecast.violations],
        "policy": forecast.policy.document() if forecast.policy else None,
        "checks": [as_dict(check) for check in forecast.checks],
        "enforcement": [as_dict(row) for row in forecast.enforcement],
        "contract": contract_document(forecast.contract),
    }


def _tell(forecast: Forecast) -> None:
    if forecast.violations:
        say.line("It would be refused:")
        for violation in forecast.violations:
            say.line(reply.violation_line(violation))
    else:
        say.line(f"It would run: {forecast.contract.tool_id}, {forecast.contract.inputs.command}.")
    if forecast.policy is not None:
        say.line()
        say.line("Effective policy")
        for name, value in _flat(forecast.policy.document()):
            say.line(f"  {name}: {value}")
    if forecast.enforcement:
        say.line()
        say.table(
            ("LIMIT", "REQUESTED", "BY"),
            [(row.limit, row.requested, row.mechanism) for row in forecast.enforcement],
        )


def _flat(document: dict[str, Json], prefix: str = "") -> list[tuple[str, str]]:
    flat: list[tuple[str, str]] = []
    for name, value in document.items():
        if isinstance(value, dict):
            flat += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            flat.append((f"{prefix}{name}", ", ".join(map(str, value)) or "none"))
        else:
            flat.append(
                (f"{prefix}{name}", str(value).lower() if value in (True, False) else str(value))
            )
    return flat
