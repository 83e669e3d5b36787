"""`actum check`: every stage up to the start, unrecorded. Exits 0, or 3 if it would be refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from actum.contract.call import stripped_names
from actum.contract.model import Json
from actum.contract.parse import parse_contract
from actum.doors.cli import command_table, exit_codes, reply, table, terminal
from actum.doors.cli.request_from_options import asked, require_sense
from actum.doors.cli.request_options import asking_options

if TYPE_CHECKING:
    from actum.execution.forecast import Forecast


@click.command("check", cls=command_table.Command)
@asking_options
def command(**given: Any) -> int:
    """Show whether an execution would run, under which policy, and what would enforce it.

    Takes what `actum exec` takes. Nothing is started and nothing is recorded.
    """
    require_sense(**given)
    with command_table.open_runtime() as runtime:
        # Parsed here: `check` records nothing, not even a malformed contract.
        forecast = runtime.check(parse_contract(asked(runtime, **given)))
    if command_table.wants_json():
        terminal.document(_document(forecast))
    else:
        _tell(forecast)
    return exit_codes.REFUSED if forecast.violations else exit_codes.SUCCESS


def _document(forecast: Forecast) -> dict[str, Json]:
    from actum.contract.contract_json import contract_document
    from actum.value import as_dict

    return {
        "verdict": "REFUSED" if forecast.violations else "ALLOWED",
        "violations": [as_dict(violation) for violation in forecast.violations],
        "filled": sorted(forecast.contract.filled),
        "policy": forecast.policy.document() if forecast.policy else None,
        "narrowed": [as_dict(each) for each in forecast.policy.narrowed] if forecast.policy else [],
        "checks": [as_dict(check) for check in forecast.checks],
        "enforcement": [as_dict(row) for row in forecast.enforcement],
        "contract": contract_document(forecast.contract),
    }


def _tell(forecast: Forecast) -> None:
    if forecast.violations:
        terminal.line("It would be refused:")
        for violation in forecast.violations:
            terminal.line(reply.violation_line(violation))
    else:
        terminal.line(
            f"It would run: {forecast.contract.tool_id}, {forecast.contract.inputs.command}."
        )
    if forecast.policy is not None:
        terminal.line()
        terminal.line("Effective policy")
        for name, value in _flat(forecast.policy.document()):
            terminal.line(f"  {name}: {value}")
        for narrowed in forecast.policy.narrowed:
            terminal.line(reply.narrowed_line(narrowed))
        for text in reply.stripped_lines(stripped_names(forecast.checks)):
            terminal.line(text)
    if forecast.enforcement:
        terminal.line()
        table.show(
            (table.whole("LIMIT"), table.whole("REQUESTED"), table.whole("BY")),
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
