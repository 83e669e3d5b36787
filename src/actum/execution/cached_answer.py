"""The result cache as a stage: an answer taken from it, and a result put into it."""

from __future__ import annotations

from actum.capture.model import Capture
from actum.contract.call import Plan
from actum.determinism.second_run import trace_determination
from actum.evidence.records.trace import EventType
from actum.execution.execution import Execution
from actum.execution.result_cache import CachedResult, answered, is_fit, key_of


def find_cached(execution: Execution, plan: Plan) -> bool:
    """Whether this session holds a result that a run would only repeat."""
    key = key_of(plan, execution.intent.input_digest, execution.contract.determinism)
    execution.cache_key = key
    if key is not None:
        execution.cached = execution.services.results.get(execution.session, key)
    return execution.cached is not None


def answer_cached(execution: Execution) -> Capture:
    """The cached capture. It is put on record as any other; only no tool runs."""
    cached = execution.cached
    assert cached is not None  # noqa: S101 -- found by `find_cached`
    source = {"execution_id": cached.execution_id, "receipt_id": cached.receipt_id}
    execution.emit(EventType.CACHED, source)
    execution.determination = found = cached.determination
    trace_determination(
        found, execution.intent, execution.trace, execution.elapsed_ms, execution.cache_key
    )
    on_output = execution.options.on_output
    for name, stream in (("stdout", cached.capture.stdout), ("stderr", cached.capture.stderr)):
        if on_output is not None and stream.kept:
            on_output(name, stream.kept)
    return answered(cached)


def store_result(execution: Execution, capture: Capture) -> None:
    """Cache the result of an execution that succeeded, if it can serve the next equal one."""
    found, key = execution.determination, execution.cache_key
    if key is None or found is None or execution.cached is not None or not is_fit(capture, found):
        return
    result = CachedResult(
        capture=capture,
        execution_id=execution.contract.execution_id,
        receipt_id=execution.intent.receipt_id,
        determination=found,
    )
    execution.services.results.put(execution.session, key, result)
