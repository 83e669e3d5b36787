"""The contract's wire form, its digests, and the schemas of its documents.

A document written here reads back through `contract.parse` as the same contract.
"""

from __future__ import annotations

import base64
import json
import marshal
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from actum.contract.canonical import sha256_bytes, sha256_json
from actum.contract.model import (
    NOTHING_ASKED,
    NOTHING_EXPECTED,
    Contract,
    ExpectedOutputs,
    FilesystemRequest,
    Inputs,
    Json,
    Metadata,
    NetworkRequest,
    SandboxRequest,
)
from actum.contract.timestamps import iso_text
from actum.errors import Refused

#: The schemas that `schema` returns. Those of tools and adapters are in `registry/`.
SCHEMAS = ("execution-contract",)


def schema(name: str) -> dict[str, Json]:
    """The JSON Schema of that name, as a fresh copy."""
    if name not in SCHEMAS:
        raise Refused(
            "SCHEMA_UNKNOWN",
            f"There is no schema {name!r}.",
            remedy=f"Choose one of: {', '.join(SCHEMAS)}.",
        )
    text = (Path(__file__).parent / "schemas" / f"{name}.json").read_text("utf-8")
    loaded: dict[str, Json] = json.loads(text)
    return loaded


def contract_sha256(contract: Contract) -> str:
    """The digest of the whole contract, filled fields included. Receipts bind it."""
    return digests(contract)[0]


def identity_sha256(contract: Contract) -> str:
    """The digest of what the requester wrote: equal for equal requests."""
    return digests(contract)[1]


def digests(contract: Contract) -> tuple[str, str]:
    """(contract, identity)."""
    document = contract_document(contract)
    whole = sha256_json(document)
    for name in contract.filled:
        section, _, key = name.rpartition(".")
        (document.get(section, {}) if section else document).pop(key, None)
    return whole, sha256_json(document)


def asked_sha256(contract: Contract) -> str:
    """The digest of the inputs as asked for, of a request whose input files were not read."""
    return sha256_json(asked_document(contract))


#: Decisions about a larger request are not cached.
_MOST_BYTES = 16_384


def request_key(contract: Contract) -> Hashable | None:
    """The cache key of a request: everything but id, time, requester, purpose and stdin. By value,
    and by type where values of several types are equal (1, 1.0, true). ``None`` if the request is
    too large or is not plain data."""
    inputs = contract.inputs
    given = b""
    if inputs.parameters or inputs.environment or inputs.secrets:
        mappings: Any = (inputs.parameters, inputs.environment, inputs.secrets)
        try:
            given = marshal.dumps(mappings, 2)  # keeps types apart
        except ValueError:
            return None
    arguments = inputs.arguments
    if len(given) + (sum(map(len, arguments)) if arguments else 0) > _MOST_BYTES:
        return None
    return (
        contract.tool_id,
        contract.adapter_id,
        inputs.command,
        arguments,
        given,
        inputs.working_directory,
        inputs.input_files,
        # Empty sections become one constant: comparing them takes longer than all the rest.
        None if contract.sandbox is NOTHING_ASKED else contract.sandbox,
        None if contract.outputs is NOTHING_EXPECTED else contract.outputs,
        contract.determinism,
        contract.session,
        contract.filled,
    )


def asked_document(contract: Contract) -> dict[str, Json]:
    """The inputs as requested; equal inputs give equal documents on every machine."""
    inputs = contract.inputs
    return {
        "tool_id": contract.tool_id,
        "command": inputs.command,
        "arguments": inputs.arguments,
        "parameters": dict(inputs.parameters),
        "environment": dict(inputs.environment),
        "stdin": sha256_bytes(inputs.stdin or b""),
        **({"secrets": dict(inputs.secrets)} if inputs.secrets else {}),
    }


def contract_document(contract: Contract) -> dict[str, Json]:
    """The contract as the JSON data that its schema describes."""
    adapter_id, session = contract.adapter_id, contract.session
    return {
        "execution_id": contract.execution_id,
        "tool_id": contract.tool_id,
        **({} if adapter_id is None else {"adapter_id": adapter_id}),
        "inputs": _inputs(contract.inputs),
        "sandbox": _sandbox(contract.sandbox),
        "outputs": _outputs(contract.outputs),
        "metadata": _metadata(contract.metadata),
        "determinism": contract.determinism.value,
        **({} if session is None else {"session": session}),
    }


def _given(**values: Json) -> dict[str, Json]:
    return {name: value for name, value in values.items() if value is not None}


def _inputs(inputs: Inputs) -> dict[str, Json]:
    document = {
        "command": inputs.command,
        "arguments": list(inputs.arguments),
        "parameters": dict(inputs.parameters),
        "environment": dict(inputs.environment),
        "working_directory": inputs.working_directory,
        "input_files": list(inputs.input_files),
    }
    if inputs.stdin is not None:
        document["stdin"] = _bytes(inputs.stdin)
    if inputs.secrets:
        document["secrets"] = dict(inputs.secrets)
    return document


def _bytes(data: bytes) -> Json:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _sandbox(sandbox: SandboxRequest) -> dict[str, Json]:
    if sandbox is NOTHING_ASKED:
        return {}
    processes = sandbox.processes
    sections = {
        "filesystem": _filesystem(sandbox.filesystem),
        "network": _network(sandbox.network),
        "processes": _given(max_children=processes.max_children, allow_fork=processes.allow_fork),
    }
    return {
        **_given(
            timeout_ms=sandbox.timeout_ms,
            memory_mb=sandbox.memory_mb,
            cpu_cores=sandbox.cpu_cores,
        ),
        **{name: section for name, section in sections.items() if section},
    }


def _filesystem(request: FilesystemRequest) -> dict[str, Json]:
    return _given(
        level=request.level and request.level.value,
        read=None if request.read is None else list(request.read),
        write=None if request.write is None else list(request.write),
        deny=list(request.deny) or None,
        changes=request.changes and request.changes.value,
    )


def _network(request: NetworkRequest) -> dict[str, Json]:
    return _given(
        level=request.level and request.level.value,
        enabled=request.enabled,
        allow=None if request.allow is None else list(request.allow),
        deny=list(request.deny) or None,
    )


def _outputs(outputs: ExpectedOutputs) -> dict[str, Json]:
    return {
        "stdout": outputs.stdout.value,
        "stderr": outputs.stderr.value,
        **_given(exit_code=outputs.exit_code),
        "output_files": list(outputs.output_files),
        "artifacts": [
            {"name": artifact.name, "path": artifact.path, "type": artifact.type}
            for artifact in outputs.artifacts
        ],
    }


def _metadata(metadata: Metadata) -> dict[str, Json]:
    document = {
        "requested_by": metadata.requested_by,
        "requested_at": iso_text(metadata.requested_at),
        "purpose": metadata.purpose,
    }
    if metadata.evidence_ref is not None:
        document["evidence_ref"] = metadata.evidence_ref
    return document
