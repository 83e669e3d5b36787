"""Records a golden output: the one way by which there come to be any, and always by a person.

The contract is carried out as any other, with its receipt, at level D2. Only what ended well and
was the same in its second run is kept: anything else would fail for no reason next time.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from actum.contract.model import Contract, Determinism, StreamMode
from actum.engine.account import Account
from actum.engine.determinism import Verified
from actum.engine.golden import key_of
from actum.engine.pipeline import prepare
from actum.engine.result import Result
from actum.engine.rooms import Rooms
from actum.errors import Refused
from actum.evidence.trace import rfc3339
from actum.store.golden import Golden
from actum.value import replace as changed


def record(
    contract: Contract,
    rooms: Rooms,
    carry_out: Callable[[Contract], Result],
    *,
    by: str,
    why: str,
    replace: bool,
) -> tuple[Result, Golden | None]:
    """(the run, what was kept of it); nothing is kept of a run that did not succeed."""
    captured = changed(contract.outputs, stdout=StreamMode.CAPTURED, stderr=StreamMode.CAPTURED)
    contract = changed(contract, outputs=captured, determinism=Determinism.D2)
    account = Account(contract, rooms)
    try:
        prepare(contract, rooms, account)
    finally:
        account.sealed.close()
    tool, adapter = account.intent.tool, account.intent.adapter
    assert tool is not None and adapter is not None  # noqa: S101 -- prepared
    key = key_of(tool, adapter, account.intent.input_digest)
    known = rooms.golden.get(key)
    if known is not None and not replace:
        raise Refused(
            "GOLDEN_EXISTS",
            f"There is a golden output for these inputs already: {key[:12]}, by {known.by}.",
            remedy="`actum golden show` it; give --replace if it is no longer right.",
        )
    result = carry_out(contract)
    if not result.ok or result.result is None:
        return result, None
    kept = rooms.sessions.get(result.session, result.execution_id)
    _require_fit(result, kept is not None)
    assert kept is not None  # noqa: S101 -- just required
    if _signed_inputs(rooms, result) != account.intent.input_digest:
        raise Refused(
            "GOLDEN_UNFIT",
            "An input file changed while the output was recorded. Nothing was recorded.",
            remedy="Record it again once nothing writes the input files.",
        )
    golden = Golden(
        key=key,
        tool=f"{tool.tool_id} {tool.version}",
        adapter=f"{adapter.adapter_id} {adapter.version}",
        input_digest=account.intent.input_digest,
        exit_code=result.result.exit_code or 0,
        stdout=kept[0],
        stderr=kept[1],
        execution_id=result.execution_id,
        receipt_id=result.receipt_id,
        by=by,
        why=why,
        at=rfc3339(rooms.clock()),
    )
    rooms.golden.put(golden)
    return result, golden


def _signed_inputs(rooms: Rooms, result: Result) -> str:
    """The digest of the inputs that the run has read."""
    envelope = rooms.receipts.find(result.receipt_id).envelope
    digest: str = json.loads(base64.b64decode(envelope["payload"]))["predicate"]["input_digest"]
    return digest


def _require_fit(result: Result, is_kept: bool) -> None:
    determinism = result.determinism or {"verified": Verified.NOT_RUN.value, "why": "level D0"}
    reason = determinism["why"] or ", ".join(determinism.get("differs", ()))
    truncated = any(facts.truncated for facts in (result.streams or {}).values())
    if determinism["verified"] != Verified.MATCH:
        text = f"A second run did not give the same ({determinism['verified']}: {reason})."
        remedy = "Give it nothing to write into, and see docs/determinism.md for what repeats."
    elif truncated or not is_kept:
        text, remedy = "Its output is longer than is kept.", "Have the tool say less, or in files."
    else:
        return
    raise Refused("GOLDEN_UNFIT", f"{text} Nothing was recorded.", remedy=remedy)
