"""Records a golden output: the only way to make one, and always by a person.

The contract is carried out as any other, with its receipt, at level D2. Only an output that
succeeded and was equal in the second run is recorded: any other would fail the next comparison
without a reason.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from actum.contract.model import Contract, Determinism, StreamMode
from actum.determinism.claims import Verified
from actum.errors import Refused
from actum.evidence.records.trace import rfc3339
from actum.execution.execution import Execution
from actum.execution.preparation import prepare
from actum.execution.result import Result
from actum.execution.services import Services
from actum.golden.expected import key_of
from actum.store.golden_outputs import Golden
from actum.value import replace as changed


def record(
    contract: Contract,
    services: Services,
    carry_out: Callable[[Contract], Result],
    *,
    by: str,
    why: str,
    replace: bool,
) -> tuple[Result, Golden | None]:
    """(the run, its golden output); ``None`` if the run did not succeed."""
    captured = changed(contract.outputs, stdout=StreamMode.CAPTURED, stderr=StreamMode.CAPTURED)
    contract = changed(contract, outputs=captured, determinism=Determinism.D2)
    execution = Execution(contract, services)
    try:
        prepare(execution, contract)
    finally:
        execution.sealed_inputs.close()
    tool, adapter = execution.intent.tool, execution.intent.adapter
    assert tool is not None and adapter is not None  # noqa: S101 -- prepared
    key = key_of(tool, adapter, execution.intent.input_digest)
    known = services.golden.get(key)
    if known is not None and not replace:
        raise Refused(
            "GOLDEN_EXISTS",
            f"There is a golden output for these inputs already: {key[:12]}, by {known.by}.",
            remedy="`actum golden show` it; give --replace if it is no longer right.",
        )
    result = carry_out(contract)
    if not result.ok or result.result is None:
        return result, None
    kept = services.sessions.get(result.session, result.execution_id)
    _require_fit(result, kept is not None)
    assert kept is not None  # noqa: S101 -- just required
    if _signed_inputs(services, result) != execution.intent.input_digest:
        raise Refused(
            "GOLDEN_UNFIT",
            "An input file changed while the output was recorded. Nothing was recorded.",
            remedy="Record it again once nothing writes the input files.",
        )
    golden = Golden(
        key=key,
        tool=f"{tool.tool_id} {tool.version}",
        adapter=f"{adapter.adapter_id} {adapter.version}",
        input_digest=execution.intent.input_digest,
        exit_code=result.result.exit_code or 0,
        stdout=kept[0],
        stderr=kept[1],
        execution_id=result.execution_id,
        receipt_id=result.receipt_id,
        by=by,
        why=why,
        at=rfc3339(services.clock()),
    )
    services.golden.put(golden)
    return result, golden


def _signed_inputs(services: Services, result: Result) -> str:
    """The digest of the inputs that the run read."""
    envelope = services.receipts.find(result.receipt_id).envelope
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
