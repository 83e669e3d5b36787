"""The caller's `Result`, one for every outcome, and its JSON document."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from actum.capture.model import (
    ADDRESS_LITERAL,
    NETWORK,
    NO_NETWORK,
    Connection,
    Denial,
    Enforced,
    Stream,
    Workspace,
)
from actum.capture.streams import SILENCE
from actum.contract.call import Narrowed
from actum.contract.model import Json
from actum.contract.outcome import Outcome, ToolRunStatus
from actum.errors import ActumError, Violation
from actum.execution.artifact import VALUE_TYPE, ArtifactRef, Contents, OutputFiles
from actum.execution.output_tail import output_tail
from actum.policy.allowlist import AllowlistCheck
from actum.value import field, plain, value


class NotSucceeded(ActumError):
    """`Result.check()` on a result that is not a success; `.result` is that result."""

    code = "NOT_SUCCEEDED"

    def __init__(self, result: Result) -> None:
        reasons = ", ".join(result.reason_codes)
        details = "; ".join(violation.message for violation in result.violations)
        if not details and result.result is not None:
            details = result.result.error_reason or ""
        first = f"{result.outcome} ({reasons}): {details}".rstrip(": ")
        super().__init__("\n".join([first, *_said_last(result)]))
        self.result = result


def _said_last(result: Result) -> list[str]:
    """The end of stderr, which has the traceback of a snippet; of stdout, if stderr is empty."""
    run = result.result
    if run is None:
        return []
    for name, text in (("stderr", run.stderr), ("stdout", run.stdout)):
        facts = (result.streams or {}).get(name)
        lines = output_tail(text, facts.encoding if facts else "utf-8")
        if lines:
            return [f"The end of {name}:", *lines]
    return []


@value
class ToolRunResult:
    """Seed 004's result, to the letter."""

    status: ToolRunStatus
    exit_code: int | None
    stdout: str
    stderr: str
    artifacts: tuple[ArtifactRef, ...]
    duration_ms: int
    error_reason: str | None


@value
class StreamFacts:
    bytes: int
    kept: int
    truncated: bool
    sha256: str
    encoding: str  #: ``utf-8``, or ``base64`` when the text above is encoded to stay exact


@value
class Attempt:
    """One attempt of several that were possible; its output as a digest only."""

    attempt: int
    adapter_id: str
    outcome: str
    code: int | None  #: exit code or HTTP status
    transport_failure: bool
    duration_ms: int
    proof_sha256: str
    output_digest: str
    why: str  #: why it was, or was not, retried; empty after a success


@value
class FellBack:
    """The condition of the fallback adapter held; whether that adapter ran."""

    adapter_id: str
    condition: str
    refused: tuple[str, ...] = ()  #: why it did not run; empty: it ran


@value
class NetworkRefusal:
    """A host that the tool tried and that Actum refused, or attempts that the kernel counted."""

    host: str  #: empty for addresses without a route: the kernel keeps none of them
    port: int  #: 0 for a name that was only looked up
    count: int
    why: str


@value
class Result:
    """One execution, as its caller gets it."""

    execution_id: str
    trace_id: str
    session: str
    tool_id: str
    adapter_id: str | None
    runner_type: str | None
    attempts: int
    #: active, deprecated or experimental; ``None`` if no adapter was found
    adapter_status: str | None = None
    outcome: Outcome
    reason_codes: tuple[str, ...]
    violations: tuple[Violation, ...] = ()
    result: ToolRunResult | None = None  #: ``None`` when refused: the runner was never called
    output: Json = None
    streams: Mapping[str, StreamFacts] | None = None
    enforcement: tuple[Enforced, ...] = ()
    denials: tuple[Denial, ...] = ()
    egress: tuple[Connection, ...] = ()  #: every connection outside, made or refused
    #: Dotted names of the contract's fields that Actum filled in.
    filled: tuple[str, ...] = ()
    narrowed: tuple[Narrowed, ...] = ()  #: where the call gets less than the request names
    #: Names of `env` that the tool's approval does not permit: the tool does not get them (IV-04).
    stripped: tuple[str, ...] = ()
    allowlist: AllowlistCheck | None = None  #: of the command, after exit code 127
    evidence_ref: str = ""  #: `Runtime.evidence` and `actum evidence` take it
    receipt_id: str = ""
    receipt_at: str = ""  #: where the receipt's file is, or will be
    replayed: bool = False
    cached: str | None = None  #: the execution whose result this is; no tool ran
    #: The level asked for and ``verified: MATCH | DIFF | NOT_RUN``; ``None`` at D0.
    determinism: Mapping[str, Json] | None = None
    #: Writes that file. The store has the receipt already; most are never read as a file.
    export: Callable[[], object] | None = field(default=None, compare=False, repr=False)
    #: Small collected files by their BLAKE3, as the store has them.
    small_files: Mapping[str, bytes] | None = field(default=None, compare=False, repr=False)
    history: tuple[Attempt, ...] = ()  #: where the adapter may try again or fall back
    fallback: FellBack | None = None
    #: Files in the working directory of a snippet that were not collected: path, size, reason.
    left_out: tuple[tuple[str, int, str], ...] = ()
    workspace: Workspace | None = None  #: what became of changes that were a transaction

    @property
    def receipt_path(self) -> str:
        """The receipt's file, which is written now."""
        if self.export is not None:
            self.export()
        return self.receipt_at

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.SUCCEEDED

    @property
    def artifacts(self) -> tuple[ArtifactRef, ...]:
        """The collected files; empty if nothing ran."""
        return self.result.artifacts if self.result else ()

    @property
    def files(self) -> OutputFiles:
        """What the tool produced: the artifacts and output files by path and, of a snippet, what it
        wrote in its working directory, by path there. Without the value of a snippet."""
        return OutputFiles(self.artifacts, self.left_out)

    @property
    def is_value(self) -> bool:
        """Whether `output` is the value of a snippet."""
        return self.output is not None and any(each.type == VALUE_TYPE for each in self.artifacts)

    @property
    def network_refused(self) -> tuple[NetworkRefusal, ...]:
        """What the tool tried to reach and was refused, whatever its exit code: each once, with
        its count. A permitted host that did not answer is not among them; it is in `egress`."""
        found: dict[tuple[str, int, str], int] = {}
        for one in self.egress:
            if one.denied:
                key = one.host, one.port, one.refused
                found[key] = found.get(key, 0) + one.count
        for denial in self.denials:
            if denial.kind == NETWORK and denial.target in (ADDRESS_LITERAL, NO_NETWORK):
                found["", 0, denial.target] = denial.count
        return tuple(
            NetworkRefusal(host=host, port=port, count=count, why=why)
            for (host, port, why), count in found.items()
        )

    def check(self) -> Result:
        """This result, or `NotSucceeded`."""
        if not self.ok:
            raise NotSucceeded(self)
        return self

    def document(self) -> dict[str, Json]:
        """The `--json` document."""
        document = self._document(
            violations=[plain(violation) for violation in self.violations],
            result=_tool_run(self.result) if self.result else None,
            output=self.output,
            enforcement=_rows(self.enforcement),
            receipt_path=self.receipt_path,
        )
        return document | {"left_out": [list(each) for each in self.left_out]}

    def without_output(self) -> dict[str, Json]:
        """The document that is stored: no byte of the request or of the tool's output."""
        run = None
        if self.result is not None:
            reason = self.result.error_reason and ", ".join(self.reason_codes)
            run = _tool_run(self.result)
            run["stdout"] = run["stderr"] = ""
            run["error_reason"] = reason
        return self._document(
            violations=[
                {"code": violation.code, "field": "", "value": "", "message": ""}
                for violation in self.violations
            ],
            result=run,
            output=None,
            enforcement=_rows(self.enforcement),
            receipt_path=self.receipt_at,
        )

    def _document(
        self,
        *,
        violations: Json,
        result: Json,
        output: Json,
        enforcement: Json,
        receipt_path: str,
    ) -> dict[str, Json]:
        return {
            "execution_id": self.execution_id,
            "trace_id": self.trace_id,
            "session": self.session,
            "tool_id": self.tool_id,
            "adapter_id": self.adapter_id,
            "adapter_status": self.adapter_status,
            "runner_type": self.runner_type,
            "attempts": self.attempts,
            "history": _plain(self.history),
            "fallback": plain(self.fallback) if self.fallback else None,
            "replayed": self.replayed,
            "outcome": str(self.outcome),
            "reason_codes": list(self.reason_codes),
            "violations": violations,
            "filled": list(self.filled),
            "narrowed": _plain(self.narrowed),
            "stripped": list(self.stripped),
            "result": result,
            "output": output,
            "streams": {name: plain(facts) for name, facts in (self.streams or {}).items()},
            "enforcement": enforcement,
            "denials": _plain(self.denials),
            "egress": _plain(self.egress),
            "network_refused": _plain(self.network_refused),
            "workspace": plain(self.workspace) if self.workspace else None,
            "cached": self.cached,
            "determinism": self.determinism,
            "allowlist": plain(self.allowlist) if self.allowlist else None,
            "evidence_ref": self.evidence_ref,
            "receipt_id": self.receipt_id,
            "receipt_path": receipt_path,
        }


def _plain(values: tuple[Any, ...]) -> list[Json]:
    return [plain(each) for each in values] if values else []


def _rows(enforcement: tuple[Enforced, ...]) -> list[Json]:
    """As `plain` has them, written out because every execution has a dozen."""
    return [
        {
            "limit": row.limit,
            "requested": row.requested,
            "mechanism": row.mechanism,
            "enforced": row.enforced,
            "peak": row.peak,
            "tripped": row.tripped,
        }
        for row in enforcement
    ]


def _tool_run(result: ToolRunResult) -> dict[str, Json]:
    return {
        "status": str(result.status),
        "exit_code": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "artifacts": [each.document() for each in result.artifacts],
        "duration_ms": result.duration_ms,
        "error_reason": result.error_reason,
    }


#: A stream to which the tool wrote nothing.
_SILENT = "", StreamFacts(bytes=0, kept=0, truncated=False, sha256=SILENCE.sha256, encoding="utf-8")


def encoded(stream: Stream) -> tuple[str, StreamFacts]:
    """A stream as text, exact: UTF-8 if it is, base64 if it is not."""
    if stream is SILENCE:
        return _SILENT
    encoding = "utf-8"
    try:
        text = _text(stream) if stream.kept else ""
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(stream.kept).decode(), "base64"
    facts = StreamFacts(
        bytes=stream.total_bytes,
        kept=len(stream.kept),
        truncated=stream.truncated,
        sha256=stream.sha256,
        encoding=encoding,
    )
    return text, facts


def _text(stream: Stream) -> str:
    try:
        return stream.kept.decode()
    except UnicodeDecodeError as error:
        # The cut after the last kept byte may split a character; that alone is not binary.
        cut = stream.truncated and error.start >= len(stream.kept) - 3
        if not cut or error.reason != "unexpected end of data":
            raise
        return stream.kept[: error.start].decode()


def result_from(
    document: Mapping[str, Json], stdout: bytes, stderr: bytes, contents: Contents | None = None
) -> Result:
    """The result that a stored document and the session's raw streams were."""
    kept = {"stdout": stdout, "stderr": stderr}
    texts = {
        name: base64.b64encode(kept[name]).decode()
        if facts["encoding"] == "base64"
        else kept[name].decode(errors="ignore")
        for name, facts in document["streams"].items()
    }
    tool_run = document["result"]
    return Result(
        **{
            name: document[name]
            for name in (
                "execution_id",
                "trace_id",
                "session",
                "tool_id",
                "adapter_id",
                "runner_type",
                "attempts",
                "receipt_id",
            )
        },
        adapter_status=document.get("adapter_status"),
        receipt_at=document["receipt_path"],
        outcome=Outcome(document["outcome"]),
        reason_codes=tuple(document["reason_codes"]),
        violations=tuple(Violation(**item) for item in document["violations"]),
        result=None
        if tool_run is None
        else ToolRunResult(
            status=ToolRunStatus(tool_run["status"]),
            exit_code=tool_run["exit_code"],
            stdout=texts.get("stdout", ""),
            stderr=texts.get("stderr", ""),
            artifacts=tuple(
                ArtifactRef(**item, contents=contents) for item in tool_run["artifacts"]
            ),
            duration_ms=tool_run["duration_ms"],
            error_reason=tool_run["error_reason"],
        ),
        streams={name: StreamFacts(**facts) for name, facts in document["streams"].items()},
        enforcement=tuple(Enforced(**row) for row in document["enforcement"]),
        denials=tuple(Denial(**item) for item in document["denials"]),
        egress=tuple(Connection(**item) for item in document["egress"]),
        cached=document.get("cached"),
        determinism=document.get("determinism"),
        filled=tuple(document.get("filled", ())),
        narrowed=tuple(Narrowed(**item) for item in document.get("narrowed", ())),
        stripped=tuple(document.get("stripped", ())),
        allowlist=AllowlistCheck(**allowlist) if (allowlist := document.get("allowlist")) else None,
        evidence_ref=document.get("evidence_ref", ""),
        replayed=True,
        history=tuple(Attempt(**item) for item in document.get("history", ())),
        fallback=_fell_back(document.get("fallback")),
    )


def _fell_back(document: Mapping[str, Json] | None) -> FellBack | None:
    if document is None:
        return None
    return FellBack(**{**document, "refused": tuple(document["refused"])})
