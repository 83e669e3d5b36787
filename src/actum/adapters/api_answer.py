"""What came back of an api call: the driver's answer as a value, as a status, as words.

The answer is a tool's word: it is read as far as it can be, and what is not there tells nothing.
"""

from __future__ import annotations

import base64
import http
import json

from actum.adapters.output import Said
from actum.adapters.parsers import OutputInvalid, parse_text
from actum.adapters.told import Told
from actum.capture.model import Capture, Exited
from actum.contract.model import Json
from actum.registry.model import Adapter


def _answer(capture: Capture) -> dict[str, Json]:
    """What the driver said; empty if it did not come to say anything."""
    if not isinstance(capture.ending, Exited) or capture.stdout.truncated:
        return {}
    try:
        answer = json.loads(capture.stdout.kept)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def said_by(adapter: Adapter, capture: Capture) -> Said:
    """The body of the response: JSON if it says that it is, else text, else base64 of its bytes."""
    answer = _answer(capture)
    if "body" not in answer:
        raise OutputInvalid("The driver gave no answer.")
    body, kind = answer["body"], answer["headers"].get("content-type", "").lower()
    if answer["encoding"] != "utf-8":
        raw = base64.b64decode(body)
        return Said(raw=raw, has_value=True, value={"encoding": "base64", "body": body})
    raw = body.encode()
    transforms = adapter.output_transforms
    if transforms and transforms[0].type == "parse":
        return Said(raw=raw)
    media = kind.partition(";")[0].strip()
    if not body.strip():
        return Said(raw=raw, has_value=True)
    if media == "application/json" or media.endswith("+json"):
        return Said(raw=raw, has_value=True, value=parse_text("json", body, "the response"))
    return Said(raw=raw, has_value=True, value=body)


def told_by(capture: Capture) -> Told:
    """Status, transport failure, and how long the service asks to be left alone."""
    answer = _answer(capture)
    status, error = answer.get("status"), answer.get("error") or {}
    code = status if isinstance(status, int) else None
    if error:
        transport = error.get("kind") == "transport"
        return Told(
            code=None if transport else code,
            transport_failure=transport,
            untouched=transport and error.get("sent") is False,
            reason=str(error.get("message", ""))[:300],
        )
    wait = answer.get("retry_after_s")
    return Told(
        code=code,
        retry_after_s=float(wait) if isinstance(wait, (int, float)) else None,
        reason="" if code is None or 200 <= code < 300 else _phrase(code),
    )


def _phrase(code: int) -> str:
    """Our own words for a status; those of the other side are its output."""
    try:
        return f"HTTP {code} {http.HTTPStatus(code).phrase}"
    except ValueError:
        return f"HTTP {code}"
