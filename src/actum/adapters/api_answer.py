"""The result of an api call: the driver's answer as a value, as a status, as a message.

The answer comes from a tool: it is read as far as possible, and a missing part means nothing.
"""

from __future__ import annotations

import base64
import http
import json

from actum.adapters.attempt_report import AttemptReport
from actum.adapters.output_transforms import ToolAnswer
from actum.adapters.parsers import OutputInvalid, parse_text
from actum.capture.model import Capture, Exited
from actum.contract.model import Json
from actum.registry.model import Adapter


def _answer(capture: Capture) -> dict[str, Json]:
    """The driver's answer; empty if it gave none."""
    if not isinstance(capture.ending, Exited) or capture.stdout.truncated:
        return {}
    try:
        answer = json.loads(capture.stdout.kept)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def answer_of(adapter: Adapter, capture: Capture) -> ToolAnswer:
    """The body of the response: JSON if declared so, else text, else base64 of its bytes."""
    answer = _answer(capture)
    if "body" not in answer:
        raise OutputInvalid("The driver gave no answer.")
    body, kind = answer["body"], answer["headers"].get("content-type", "").lower()
    if answer["encoding"] != "utf-8":
        raw = base64.b64decode(body)
        return ToolAnswer(raw=raw, has_value=True, value={"encoding": "base64", "body": body})
    raw = body.encode()
    transforms = adapter.output_transforms
    if transforms and transforms[0].type == "parse":
        return ToolAnswer(raw=raw)
    media = kind.partition(";")[0].strip()
    if not body.strip():
        return ToolAnswer(raw=raw, has_value=True)
    if media == "application/json" or media.endswith("+json"):
        return ToolAnswer(raw=raw, has_value=True, value=parse_text("json", body, "the response"))
    return ToolAnswer(raw=raw, has_value=True, value=body)


def report_of(capture: Capture) -> AttemptReport:
    """Status, transport failure, and the delay that the service requested."""
    answer = _answer(capture)
    status, error = answer.get("status"), answer.get("error") or {}
    code = status if isinstance(status, int) else None
    if error:
        transport = error.get("kind") == "transport"
        return AttemptReport(
            code=None if transport else code,
            transport_failure=transport,
            untouched=transport and error.get("sent") is False,
            reason=str(error.get("message", ""))[:300],
        )
    wait = answer.get("retry_after_s")
    return AttemptReport(
        code=code,
        retry_after_s=float(wait) if isinstance(wait, (int, float)) else None,
        reason="" if code is None or 200 <= code < 300 else _phrase(code),
    )


def _phrase(code: int) -> str:
    """Our own text for a status; the server's phrase is output."""
    try:
        return f"HTTP {code} {http.HTTPStatus(code).phrase}"
    except ValueError:
        return f"HTTP {code}"
