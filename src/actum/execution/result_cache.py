"""The result cache: a repeatable execution is not carried out twice in one session.

Only an execution at level D2 that succeeded and was equal in its second run is cached, never one
with a network or a secret, and only for its session. The key is everything that the tool could see:
tool, adapter and program by digest, command, arguments, environment, stdin, input files, the
effective policy, and the state of every file it may read. With too many files to check, or one that
changed this instant, nothing is cached.

An answer from the cache is an execution too, with audit, trace, evidence and a receipt, which name
the execution that it is from.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from actum.capture.model import Capture, Collected, Enforced, Exited, Stream
from actum.contract.call import Plan
from actum.contract.canonical import sha256_json
from actum.contract.levels import is_within
from actum.contract.model import Determinism, Json
from actum.determinism.claims import Determination, Verified
from actum.store.whole_file import write_whole
from actum.value import as_dict, replace, value

_FILES = 10_000  #: that are checked before an execution at the most
#: The kernel stamps files in ticks: a file that changed this recently may change again unseen.
_RECENT_NS = 100_000_000
_KEPT_BYTES = 64 << 20


@value
class CachedResult:
    """A result, and the execution it is from."""

    capture: Capture
    execution_id: str
    receipt_id: str
    determination: Determination


class ResultCache:
    """By session. A process's own session is in memory, a named one beside its raw output."""

    def __init__(self, home: str | os.PathLike[str], own_session: str) -> None:
        self._folder = Path(home) / "session"
        self._own = own_session
        self._kept: dict[str, CachedResult] = {}
        self._bytes = 0
        self._guard = threading.Lock()

    def get(self, session: str, key: str) -> CachedResult | None:
        if session == self._own:
            with self._guard:
                return self._kept.get(key)
        try:
            return _read(json.loads(self._file(session, key).read_bytes()))
        except (OSError, ValueError, KeyError):
            return None  # not there, or not whole: the tool runs

    def put(self, session: str, key: str, kept: CachedResult) -> None:
        if session == self._own:
            size = _size(kept.capture)
            with self._guard:
                if self._bytes + size <= _KEPT_BYTES:
                    self._kept[key] = kept
                    self._bytes += size
            return
        # Its folder exists: the raw output of this execution is in it.
        write_whole(self._file(session, key), json.dumps(_written(kept)).encode(), synced=False)

    def end(self, session: str) -> None:
        """Drop the results of the process's own session. Those of a named one are removed with its
        raw output."""
        if session == self._own:
            with self._guard:
                self._kept.clear()
                self._bytes = 0

    def _file(self, session: str, key: str) -> Path:
        return self._folder / session / f"cached-{key}.json"


def key_of(plan: Plan, input_digest: str, level: Determinism) -> str | None:
    """The digest that equal executions share; ``None`` if the result must not be cached."""
    policy = plan.policy
    if level is not Determinism.D2 or policy.network.enabled or policy.write or plan.secrets:
        return None
    state = _state(policy.read, policy.deny)
    if state is None:
        return None
    return sha256_json(
        {
            "call": plan.call_sha256,
            "policy": policy.sha256,
            "program": plan.proof.executable.sha256,
            "inputs": input_digest,
            "outputs": [list(plan.output_files), list(plan.artifacts)],
            "state": state,
        }
    )


def is_fit(capture: Capture, found: Determination) -> bool:
    return found.verified is Verified.MATCH and capture.ending == Exited(0)


def answered(kept: CachedResult) -> Capture:
    """The capture of the new execution: nothing ran, so nothing took time."""
    return replace(kept.capture, duration_ms=0, leftovers=(), cleanup=None)


def _state(paths: Iterable[str], deny: tuple[str, ...]) -> str | None:
    """Digest of the metadata of all readable files."""
    rows: list[Json] = []
    newest = 0
    waiting = sorted(paths, reverse=True)
    while waiting:
        path = waiting.pop()
        if any(is_within(path, denied) for denied in deny):
            continue
        try:
            found = os.lstat(path)
            if os.path.isdir(path) and not os.path.islink(path):
                with os.scandir(path) as entries:
                    waiting += sorted((entry.path for entry in entries), reverse=True)
        except OSError:
            return None  # moved meanwhile, or not readable
        # Numbers as text: nanoseconds are beyond what JSON keeps exactly.
        stamp = f"{found.st_dev}:{found.st_ino}:{found.st_mode}:{found.st_size}"
        rows.append([path, f"{stamp}:{found.st_mtime_ns}:{found.st_ctime_ns}"])
        newest = max(newest, found.st_ctime_ns)
        if len(rows) + len(waiting) > _FILES:
            return None
    return None if time.time_ns() - newest < _RECENT_NS else sha256_json(rows)


def _size(capture: Capture) -> int:
    files = sum(item.size for item in capture.collected)
    return len(capture.stdout.kept) + len(capture.stderr.kept) + files + 1_024


def _written(kept: CachedResult) -> dict[str, Json]:
    capture = kept.capture
    return {
        "execution_id": kept.execution_id,
        "receipt_id": kept.receipt_id,
        "determinism": kept.determination.document(),
        "stdout": _stream(capture.stdout),
        "stderr": _stream(capture.stderr),
        "files": [
            {**as_dict(item), "content": base64.b64encode(item.content).decode()}
            for item in capture.collected
        ],
        "enforcement": [as_dict(row) for row in capture.enforcement],
    }


def _stream(stream: Stream) -> dict[str, Json]:
    return {**as_dict(stream), "kept": base64.b64encode(stream.kept).decode()}


def _read(document: dict[str, Json]) -> CachedResult:
    level = document["determinism"]
    stdout, stderr = (
        Stream(**{**document[name], "kept": base64.b64decode(document[name]["kept"])})
        for name in ("stdout", "stderr")
    )
    files = tuple(
        Collected(**{**item, "content": base64.b64decode(item["content"])})
        for item in document["files"]
    )
    return CachedResult(
        execution_id=document["execution_id"],
        receipt_id=document["receipt_id"],
        determination=Determination(
            level=Determinism(level["level"]),
            verified=Verified(level["verified"]),
            runs=level["runs"],
            varied=tuple(level["varied"]),
        ),
        capture=Capture(
            ending=Exited(0),
            collected=files,
            enforcement=tuple(Enforced(**row) for row in document["enforcement"]),
            duration_ms=0,
            stdout=stdout,
            stderr=stderr,
        ),
    )
