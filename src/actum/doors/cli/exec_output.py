"""Runs `actum exec` after its options are parsed: live output on the terminal, or one document."""

from __future__ import annotations

import gc
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from actum.doors.cli import exit_codes, reply, terminal
from actum.doors.cli.live_output import passing_through
from actum.doors.cli.request_from_options import Usage, asked, require_sense
from actum.errors import EvidenceUnavailable
from actum.value import replace

if TYPE_CHECKING:
    from actum.execution.result import Result
    from actum.runners.base import Cancel


def carry_out(
    *,
    home: Path | None = None,
    session: str | None = None,
    as_json: bool = False,
    save: Path | None = None,
    whose_code: str = "actum",
    wait: str | None = None,
    changes: str = "commit",
    raw: bool = False,
    **given: Any,
) -> int:
    require_sense(**given)
    wait_s = None if wait is None else _seconds(wait)
    from actum.command_start import begin

    begun = begin(home=home)  # its spawner starts during the remaining imports
    from actum.runtime import Runtime

    with Runtime(begun.settings, session=session, pool=False, spawner=begun.spawner) as runtime:
        gc.freeze()  # existing objects stay: later collections examine only new ones
        gc.enable()
        with ended_by_signals():  # a pipe or a FIFO may stall
            source = asked(runtime, **given)
            if save is not None:
                from actum.doors.cli.save import save_contract

                save_contract(source, save)
                return exit_codes.SUCCESS
            contract = runtime.contract(source)
        with cancelled_by_signals() as cancel, passing_through(cancel, raw=raw) as live:
            result = runtime.execute(
                contract,
                on_output=None if as_json else live,
                cancel=cancel,
                wait_s=wait_s,
                on_waiting=_say_what_is_waited_for,
                changes=changes,
            )
    live.drain()
    show(result, as_json=as_json, raw=raw)
    if live.removed:
        terminal.aside("  control sequences in the output were removed; --raw shows them.")
    if whose_code == "tool" and result.result is not None and result.result.exit_code is not None:
        return result.result.exit_code
    return exit_codes.OF_OUTCOME[result.outcome]


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)(s|m|h)", text)
    if match is None:
        raise Usage(
            f"--wait {text}: write the time as --wait=30s, --wait=10m or --wait=1h, or put --wait"
            " after the TOOL."
        )
    return int(match[1]) * {"s": 1, "m": 60, "h": 3_600}[match[2]]


def _say_what_is_waited_for(result: Result) -> None:
    terminal.aside("actum: waiting for a decision.")
    for violation in result.violations:
        terminal.aside(reply.violation_line(violation))


def show(result: Result, *, as_json: bool, raw: bool = False) -> None:
    result = _with_receipt_file(result)
    if as_json:
        terminal.document(result.document())
        return
    if result.replayed and result.result is not None:
        _repeat(result, raw)
    for text in reply.summary_lines(result):
        terminal.aside(text)


def _with_receipt_file(result: Result) -> Result:
    """Write the receipt's file. If that fails, the result loses only the file's path: the tool has
    run, and the store has the receipt."""
    try:
        _ = result.receipt_path  # reading the property writes the file
    except EvidenceUnavailable as failure:
        terminal.aside(f"actum: {failure} {failure.remedy}")
        return replace(result, export=None, receipt_at="")
    return result


def _repeat(result: Result, raw: bool) -> None:
    """Print the recorded output, as it was printed live: nothing ran."""
    import base64

    from actum.runners.base import Cancel

    assert result.result is not None  # noqa: S101 -- the caller looked
    texts = {"stdout": result.result.stdout, "stderr": result.result.stderr}
    with passing_through(Cancel(), raw=raw) as live:
        for name, facts in (result.streams or {}).items():
            text = texts[name]
            live(name, base64.b64decode(text) if facts.encoding == "base64" else text.encode())
    live.drain()


@contextmanager
def cancelled_by_signals() -> Iterator[Cancel]:
    """SIGINT, SIGTERM and SIGHUP end the tool, not the recording of it."""
    from actum.runners.base import Cancel

    cancel = Cancel()
    try:
        with _on_signals(cancel.cancel):
            yield cancel
    finally:
        cancel.close()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP end the command: while its request is read, nothing runs yet."""
    with _on_signals(_interrupt):
        yield


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def _on_signals(act: Callable[[], None]) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if number != signal.SIGHUP or before[number] is not signal.SIG_IGN:  # respects nohup
            signal.signal(number, lambda *_: act())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
