"""The call that a person decides about: everything that would run, with everything it may do.

A decision is bound to the digest of this document, and the person is shown this document. So a
person approves only what could be read, except for the rest of a long input, which the document
has as a digest.
"""

from __future__ import annotations

import json

from actum.contract.call import Call, EffectivePolicy, call_sha256
from actum.contract.canonical import canonical, sha256_bytes, sha256_json
from actum.contract.contract_json import contract_document
from actum.contract.model import Contract, Json
from actum.policy.gates import ApprovalNeeded
from actum.registry.model import Pin
from actum.value import value

#: Input up to this size is shown whole; longer or binary input is shown by its beginning.
_WHOLE_BYTES = 65_536
_HEAD_BYTES = 4_096
_BINARY_HEAD_BYTES = 256
_VERSION = 1

#: Path and SHA-256 of each input file.
FileDigests = tuple[tuple[str, str], ...]


@value
class BoundCall:
    """The document and its digest."""

    content: bytes
    sha256: str


def bind(
    contract: Contract,
    call: Call,
    pin: Pin,
    *,
    files: FileDigests,
    policy: EffectivePolicy,
    wished: EffectivePolicy,
    needed: tuple[ApprovalNeeded, ...],
) -> BoundCall:
    """Equal calls give equal documents: execution_id and requested_at are no part of it.

    `files` are the input files and their digests; `policy` is what the call may do without the
    approvals that it needs, `wished` what it could do with them.
    """
    asked = contract_document(contract)
    del asked["execution_id"], asked["metadata"]["requested_at"]
    grants = wished.document()
    del grants["approvals"]
    content = canonical(
        {
            "v": _VERSION,
            "contract_sha256": sha256_json(asked),
            "call_sha256": call_sha256(
                tool=call.tool,
                adapter=call.adapter,
                argv=call.argv,
                environment=call.environment,
                working_directory=call.working_directory,
                stdin=call.stdin,
                provided=call.provided,
                secrets=call.secrets,
            ),
            "call": _shown(call, files),
            "grants": grants,
            "adds": _added(policy, wished),
            "scope": dict(pin.grants),
            "needed": [[need.gate, need.target, need.operation] for need in needed],
        }
    )
    return BoundCall(content=content, sha256=sha256_bytes(content))


def opened(content: bytes) -> dict[str, Json]:
    """The document of a stored call."""
    document: dict[str, Json] = json.loads(content)
    return document


def _shown(call: Call, files: FileDigests) -> dict[str, Json]:
    tool, adapter = call.tool, call.adapter
    return {
        "tool": {"id": tool.tool_id, "name": tool.name, "version": tool.version, "pin": tool.pin},
        "adapter": {"id": adapter.adapter_id, "version": adapter.version, "kind": adapter.kind},
        "operation": call.operation,
        "argv": list(call.argv),
        "working_directory": call.working_directory,
        "stdin": shown_bytes(call.stdin),
        "files": [{"path": path, "sha256": digest} for path, digest in files],
        "provided": {name: sha256_bytes(content) for name, content in call.provided.items()},
        "environment": sorted(call.environment),  # names; values may be secrets
        "secrets": [
            {"name": use.name, "as": "descriptor" if use.by_descriptor else use.variable}
            for use in call.secrets
            if not use.token
        ],
    }


def shown_bytes(content: bytes) -> dict[str, Json]:
    """Text as it is, or the head of long or binary content; always with the digest of all of it."""
    about: dict[str, Json] = {"bytes": len(content), "sha256": sha256_bytes(content)}
    whole = len(content) <= _WHOLE_BYTES
    shown = content if whole else content[:_HEAD_BYTES]
    try:
        # The cut may split a character.
        text = shown.decode("utf-8") if whole else _cut(shown).decode("utf-8")
    except UnicodeDecodeError:
        head = content[:_BINARY_HEAD_BYTES]
        return {**about, "encoding": "hex", "head": head.hex(), "truncated": head != content}
    return {**about, "encoding": "utf-8", "head": text, "truncated": not whole}


def _cut(head: bytes) -> bytes:
    """Without the first bytes of a character that the cut splits."""
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return head[: error.start] if len(head) - error.start < 4 else head
    return head


def _added(policy: EffectivePolicy, wished: EffectivePolicy) -> dict[str, Json]:
    """What the approvals would add to the policy."""
    pairs = {
        "read": (policy.read, wished.read),
        "write": (policy.write, wished.write),
        "hosts": (policy.network.allow, wished.network.allow),
        "internal": (policy.network.internal, wished.network.internal),
        "protocols": (policy.network.outbound, wished.network.outbound),
    }
    return {
        name: [each for each in more if each not in less]
        for name, (less, more) in pairs.items()
        if set(more) - set(less)
    }
