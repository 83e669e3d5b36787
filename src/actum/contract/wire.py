"""The contract's wire form, its digests, and the schemas that describe documents of this room.

What is written here reads back through `contract.parse` as the same contract.
"""

from __future__ import annotations

import base64
import json
import marshal
import re
from collections.abc import Hashable, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from actum.contract.canonical import canonical, sha256_bytes, sha256_json
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
from actum.contract.moments import moment_text
from actum.errors import Refused
from actum.value import value

#: What `schema` can hand out. Tools and adapters are described in the registry's own folder.
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
    """The digest of the whole contract, filled fields included: what a receipt binds."""
    return digests(contract, request_key(contract))[0]


def identity_sha256(contract: Contract) -> str:
    """The digest of what the asker wrote: equal when the same thing is asked for again."""
    return digests(contract, request_key(contract))[1]


#: Filled in for nearly every contract; what is left to say about it then is always the same.
_USUALLY_FILLED = frozenset(
    {"execution_id", "metadata.requested_by", "metadata.requested_at", "metadata.purpose"}
)


_is_plain = re.compile(r"[0-9A-Za-z-]+").fullmatch


def digests(contract: Contract, request: Hashable | None) -> tuple[str, str, str]:
    """(contract, identity, inputs as asked for); `request` is the `request_key` of `contract`."""
    body = _bodies.get((request, contract.inputs.stdin)) or _body(contract, request)
    metadata, execution_id = contract.metadata, contract.execution_id
    # An id of ours needs no escape, and most metadata are these three.
    plain_id = _is_plain(execution_id)
    named = b'"%b"' % execution_id.encode() if plain_id else canonical(execution_id)
    if metadata.evidence_ref is None:
        told = b'{"purpose":%b,"requested_at":"%b","requested_by":%b}' % (
            _text(metadata.purpose),
            moment_text(metadata.requested_at).encode(),
            _text(metadata.requested_by),
        )
    else:
        told = canonical(_metadata(metadata))
    before, between, after = body.whole
    whole = sha256(b"".join((before, named, between, told, after))).hexdigest()
    if _is_usual(contract):
        return whole, body.identity, body.asked
    return whole, _identity(contract, body, named), body.asked


def _is_usual(contract: Contract) -> bool:
    return contract.metadata.evidence_ref is None and contract.filled >= _USUALLY_FILLED


@value
class Around:
    """The canonical bytes of a contract but for an id that needs no escape and the time of the
    request; and its digests that depend on neither."""

    before: bytes  #: up to the id, with its quotation mark
    between: bytes
    after: bytes
    identity: str
    asked: str


def around(contract: Contract, request: Hashable | None) -> Around:
    """Of a contract whose id and time were filled in; `request` as for `digests`."""
    body = _bodies.get((request, contract.inputs.stdin)) or _body(contract, request)
    before, between, after = body.whole
    told = _metadata(contract.metadata)
    texts = {name: canonical(text) for name, text in told.items()}
    # No canonical text has this byte.
    first, last = _object({**texts, "requested_at": b'"\0"'}).split(b"\0")
    return Around(
        before=before + b'"',
        between=b'"' + between + first,
        after=last + after,
        identity=body.identity if _is_usual(contract) else _identity(contract, body, b""),
        asked=body.asked,
    )


def _identity(contract: Contract, body: _Body, named: bytes) -> str:
    """Where something of who asks, when and what for was written, or the id was."""
    filled, told = contract.filled, _metadata(contract.metadata)
    written = {name: told[name] for name in told if f"metadata.{name}" not in filled}
    given = {} if "execution_id" in filled else {"execution_id": named}
    return sha256_bytes(_object({**body.written, **given, "metadata": canonical(written)}))


#: By the text itself: few ask, and they ask for few reasons.
_text = lru_cache(maxsize=256)(canonical)


@value
class _Body:
    """What equal requests have in common, as canonical bytes."""

    whole: tuple[bytes, bytes, bytes]  #: up to the id, from there to the metadata, and the rest
    written: Mapping[str, bytes]  #: each section, without what was filled in
    identity: str  #: if nothing of who asks, when and what for was written
    asked: str


#: By everything that they are made of, so that none can be another request's.
_bodies: dict[Hashable, _Body] = {}
_MOST_BODIES = 256


def _body(contract: Contract, request: Hashable | None) -> _Body:
    stdin, made = contract.inputs.stdin, _made_body(contract)
    if request is not None and len(stdin or b"") <= _MOST_BYTES:
        if len(_bodies) >= _MOST_BODIES:
            _bodies.clear()
        _bodies[request, stdin] = made
    return made


def _made_body(contract: Contract) -> _Body:
    document = contract_document(contract)
    canonical(document)  # or it says what of the whole has no digest
    del document["execution_id"], document["metadata"]
    whole = {name: canonical(section) for name, section in document.items()}
    for name in contract.filled:
        section, _, key = name.rpartition(".")
        (document.get(section, {}) if section else document).pop(key, None)
    written = {name: canonical(section) for name, section in document.items()}
    return _Body(
        whole=_around(whole),
        written=written,
        identity=sha256_bytes(_object({**written, "metadata": b"{}"})),
        asked=sha256_json(asked_document(contract)),
    )


def _around(sections: Mapping[str, bytes]) -> tuple[bytes, bytes, bytes]:
    """What stands before, between and after an id and metadata in the object of all of them."""
    parts = [b"{"]
    for name in sorted((*sections, "execution_id", "metadata")):
        parts[-1] += b'"%s":' % name.encode()
        if name in sections:
            parts[-1] += sections[name] + b","
        else:
            parts.append(b",")
    before, between, after = parts
    return before, between, after.removesuffix(b",") + b"}"


def _object(sections: Mapping[str, bytes]) -> bytes:
    """The canonical object of these sections; our names for them are plain and need no escape."""
    return (
        b"{" + b",".join([b'"%s":%s' % (n.encode(), sections[n]) for n in sorted(sections)]) + b"}"
    )


#: A request with more than this is encoded and judged each time it is made.
_MOST_BYTES = 16_384


def request_key(contract: Contract) -> Hashable | None:
    """What equal requests have in common: all but id, time, who asks, what for and stdin. By value,
    and by type where values of several types are equal (1, 1.0, true). ``None``: it is too large,
    or holds something that is no plain data."""
    inputs = contract.inputs
    given = b""
    if inputs.parameters or inputs.environment or inputs.secrets:
        mappings: Any = (inputs.parameters, inputs.environment, inputs.secrets)
        try:
            given = marshal.dumps(mappings, 2)  # types and all
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
        # Said in one word if it is nothing: to compare sections takes longer than all the rest.
        None if contract.sandbox is NOTHING_ASKED else contract.sandbox,
        None if contract.outputs is NOTHING_EXPECTED else contract.outputs,
        contract.determinism,
        contract.session,
        contract.filled,
    )


def asked_document(contract: Contract) -> dict[str, Json]:
    """The inputs as asked for; equal inputs give equal documents on every machine."""
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
        "requested_at": moment_text(metadata.requested_at),
        "purpose": metadata.purpose,
    }
    if metadata.evidence_ref is not None:
        document["evidence_ref"] = metadata.evidence_ref
    return document
