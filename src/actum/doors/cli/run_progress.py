"""The progress of a run: one line that is redrawn on a terminal, plain lines elsewhere.

On a terminal the line has counts, rate, time left and the call that runs now; above it appear the
lines that a person has to see. It is drawn by a thread, at most ten times a second and only when it
has changed, so a run with a thousand items does not flicker and does not wait for the terminal.
Every name is escaped before it is drawn (`terminal`), and no line is wider than the terminal.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import unicodedata
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from actum.doors.cli import terminal
from actum.doors.cli.run_lines import line_of
from actum.value import replace, value

_REDRAW_S = 0.1
#: Up to so many items, a line for each success is shown above the live line as well.
_FEW = 50
_ERASE = "\r\x1b[K"
#: Events that only the live line shows, where there is one.
_LIVE_ONLY = ("called", "level")
_NARROWEST = 20
_WORK = ("item", "correction")


@value
class Counts:
    """How far a run is."""

    total: int = 0
    done: int = 0
    failed: int = 0
    running: int = 0
    elapsed_s: float = 0.0
    ended_here: int = 0  #: since the display began: what the rate is about
    now: str = ""  #: what runs, for people

    def text(self) -> str:
        """The line, unescaped."""
        of = f"/{self.total}" if self.total else ""
        parts = [f"{self.done}{of} done"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        parts.append(f"{self.running} running")
        rate = self.ended_here / self.elapsed_s if self.elapsed_s > 0 else 0.0
        left = self.total - self.done - self.failed
        if self.ended_here > 1 and rate > 0:
            parts.append(f"{rate:.1f}/s")
            if left > 0:
                parts.append(f"{_duration(left / rate)} left")
        if self.now:
            parts.append(self.now)
        return " · ".join(parts)


class RunProgress:
    """Hears the events of a run, from any thread. Use it as a context."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix  #: of plain lines
        self._live = _is_screen()
        self._lock = threading.Lock()
        self._counts = Counts()
        self._running: dict[str, str] = {}
        self._ends: dict[str, str] = {}
        self._drawn = ""
        self._began = time.monotonic()
        self._over = threading.Event()
        self._drawer: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._live:
            self._drawer = threading.Thread(
                target=self._draw_often, name="actum-progress", daemon=True
            )
            self._drawer.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._drawer is not None:
            self._drawer.join()
        with self._lock:
            self._erase()

    def __call__(self, event: Mapping[str, Any]) -> None:
        line = line_of(event)
        with self._lock:
            self._count(event)
            if line is not None and not self._only_live(event):
                self._erase()
                terminal.aside(f"{self._prefix}{line}")

    def say_step(self, event: Mapping[str, Any]) -> None:
        """A change that the ledger of another process shows: a line on stdout, and counted."""
        kind, name, status = event.get("kind"), event.get("item") or "", event["status"]
        with self._lock:
            if kind in _WORK and status == "started":
                self._running[name] = ""
            elif kind in _WORK:
                self._end(name, status)
            self._erase()
            of = f" {name}" if name else ""
            terminal.line(f"{kind or 'run'}{of} {status}")
            terminal.flush()

    def _only_live(self, event: Mapping[str, Any]) -> bool:
        if not self._live:
            return False
        many = self._counts.total > _FEW
        return event["at"] in _LIVE_ONLY or (
            many and event["at"] == "ended" and event["status"] == "success"
        )

    def _count(self, event: Mapping[str, Any]) -> None:
        name = event.get("item") or ""
        match event["at"]:
            case "begun" | "continuing":
                self._counts = _with(
                    self._counts, total=event["of"], done=event.get("committed", 0)
                )
            case "started":
                self._running[name] = str(event.get("agent", ""))
            case "calling":
                self._running[name] = str(event["tool"])
            case "called":
                self._running[name] = ""
            case "ended":
                self._end(name, event["status"])
            case "conflict":
                self._end(name, "")
            case "validating":
                self._running["validation"] = str(event["validator"])
            case "validated":
                self._running.pop("validation", None)

    def _end(self, name: str, status: str) -> None:
        self._running.pop(name, None)
        before, self._ends[name] = self._ends.get(name), status
        change = {"success": 0, "failed": 0}
        for word, sign in ((before, -1), (status, 1)):
            if word == "success":
                change["success"] += sign
            elif word:
                change["failed"] += sign
        counts = self._counts
        self._counts = _with(
            counts,
            done=counts.done + change["success"],
            failed=counts.failed + change["failed"],
            ended_here=counts.ended_here + (1 if before is None else 0),
        )

    def _draw_often(self) -> None:
        while not self._over.wait(_REDRAW_S):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        columns = _columns()
        if columns < _NARROWEST:
            return
        now = next((f"{name}: {what}" for name, what in self._running.items() if what), "")
        counts = _with(
            self._counts,
            running=len(self._running),
            elapsed_s=time.monotonic() - self._began,
            now=now,
        )
        line = fitting(terminal.one_line(counts.text()), columns - 1)
        if line != self._drawn:
            sys.stderr.write(f"{_ERASE}{line}")
            sys.stderr.flush()
            self._drawn = line

    def _erase(self) -> None:
        if self._drawn:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
            self._drawn = ""


def fitting(text: str, columns: int) -> str:
    """The beginning of a printable text, no wider than so many columns."""
    used = 0
    for place, letter in enumerate(text):
        used += _width(letter)
        if used > columns:
            return text[:place]
    return text


def _width(letter: str) -> int:
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return (
        f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
    )


def _with(counts: Counts, **changed: Any) -> Counts:
    return replace(counts, **changed)


def _is_screen() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        return 80
