"""Golden outputs in an execution: what is expected of it, and how it differs.

`outputs.stdout: expected` compares with the golden output stored for exactly this tool version,
adapter version and input digest. Without one nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from actum.capture.model import Capture, Exited, Stream
from actum.contract.call import AdapterRef, ToolRef
from actum.contract.canonical import sha256_bytes, sha256_json
from actum.contract.model import NOTHING_EXPECTED, ExpectedOutputs, StreamMode
from actum.errors import Refused, Violation
from actum.store.golden_outputs import Golden, GoldenOutputs


def key_of(tool: ToolRef, adapter: AdapterRef, input_digest: str) -> str:
    return sha256_json(
        [tool.tool_id, tool.version, adapter.adapter_id, adapter.version, input_digest]
    )


def expected_of(
    outputs: ExpectedOutputs,
    kept: GoldenOutputs,
    tool: ToolRef,
    adapter: AdapterRef,
    input_digest: str,
) -> Golden | None:
    """The golden output; ``None`` if the contract expects none. Raises if it is not stored."""
    if outputs is NOTHING_EXPECTED:
        return None
    fields = [f"outputs.{name}" for name in compared(outputs)]
    if not fields:
        return None
    golden = kept.get(key_of(tool, adapter, input_digest))
    if golden is not None:
        return golden
    violations = tuple(
        Violation(
            code="GOLDEN_MISSING",
            field=field,
            value=StreamMode.EXPECTED.value,
            message=f"{field}: there is no golden output for these inputs of {tool.tool_id}"
            f" {tool.version}. `actum golden record` makes one; or use `captured`.",
        )
        for field in fields
    )
    raise Refused("GOLDEN_MISSING", violations[0].message, violations=violations)


def compared(outputs: ExpectedOutputs) -> tuple[str, ...]:
    streams = {"stdout": outputs.stdout, "stderr": outputs.stderr}
    return tuple(name for name, mode in streams.items() if mode is StreamMode.EXPECTED)


def differences(outputs: ExpectedOutputs, golden: Golden, capture: Capture) -> Iterator[str]:
    """The problems that the comparison finds. They contain no byte of the output."""
    if not isinstance(capture.ending, Exited):
        return  # its ending is the problem
    for name in compared(outputs):
        came: Stream = getattr(capture, name)
        wanted: bytes = getattr(golden, name)
        if came.sha256 != sha256_bytes(wanted):
            at = _first_difference(came.kept, wanted)
            line = wanted.count(b"\n", 0, at) + 1
            yield (
                f"outputs.{name}: differs from the golden output {golden.key[:12]} at byte {at},"
                f" line {line} ({came.total_bytes} bytes came, {len(wanted)} are expected);"
                " if it is right now, `actum golden record --replace`"
            )


def _first_difference(came: bytes, wanted: bytes) -> int:
    shorter = min(len(came), len(wanted))
    if came[:shorter] == wanted[:shorter]:
        return shorter
    low, high = 0, shorter  # equal up to `low`, not up to `high`
    while high - low > 1:
        middle = (low + high) // 2
        if came[:middle] == wanted[:middle]:
            low = middle
        else:
            high = middle
    return low
