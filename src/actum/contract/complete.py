"""From a `Draft` to a `Contract`: what was left out is filled in once and marked as filled.

No clock, environment, user name or randomness is read here. All of it comes in through `Fill`, so
that the same draft and the same fill always give the same contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from actum.contract.levels import absolute
from actum.contract.model import (
    NOTHING_ASKED,
    NOTHING_EXPECTED,
    SCRATCH,
    ArtifactSpec,
    Contract,
    Determinism,
    ExpectedOutputs,
    FilesystemLevel,
    FilesystemRequest,
    Inputs,
    Json,
    Metadata,
    NetworkLevel,
    NetworkRequest,
    ProcessRequest,
    SandboxRequest,
    StreamMode,
)
from actum.contract.parse import Draft, from_base64, timestamp
from actum.value import value


@value
class Fill:
    """The values to use for what the asker left out."""

    execution_id: str
    requested_at: datetime
    requested_by: str
    purpose: str
    working_directory: str  #: absolute; relative ones in the draft start here
    adapter_id: str | None = None  #: ``None``: the registry picks, later


@value
class Sections:
    """What of a contract follows from its draft alone."""

    document: Mapping[str, Json]
    arguments: tuple[str, ...]
    input_files: tuple[str, ...]
    stdin: bytes | None
    sandbox: SandboxRequest
    outputs: ExpectedOutputs
    determinism: Determinism
    filled: frozenset[str]


def complete(draft: Draft, fill: Fill) -> Contract:
    """Fill what is missing and freeze the whole."""
    return completed(sections(draft), fill)


def sections(draft: Draft) -> Sections:
    document = draft.document
    inputs: Mapping[str, Json] = document["inputs"]
    metadata: Mapping[str, Json] = document.get("metadata", {})
    missing = [name for name in ("execution_id", "adapter_id") if name not in document]
    if "working_directory" not in inputs:
        missing.append("inputs.working_directory")
    told = ("requested_by", "requested_at", "purpose")
    missing += [f"metadata.{name}" for name in told if name not in metadata]
    stdin = inputs.get("stdin")
    return Sections(
        document=document,
        arguments=tuple(inputs.get("arguments", ())),
        input_files=tuple(inputs.get("input_files", ())),
        stdin=from_base64(stdin["base64"]) if isinstance(stdin, dict) else _encoded(stdin),
        sandbox=_sandbox(document.get("sandbox", {})),
        outputs=_outputs(document.get("outputs", {})),
        determinism=Determinism(document.get("determinism", Determinism.D0)),
        filled=frozenset(missing),
    )


def completed(known: Sections, fill: Fill) -> Contract:
    """A contract of its own, however often the same sections are completed."""
    document = known.document
    inputs: Mapping[str, Json] = document["inputs"]
    return Contract(
        execution_id=document.get("execution_id", fill.execution_id),
        tool_id=document["tool_id"],
        adapter_id=document.get("adapter_id", fill.adapter_id),
        inputs=Inputs(
            command=inputs["command"],
            arguments=known.arguments,
            parameters=dict(inputs.get("parameters", ())),
            environment=dict(inputs.get("environment", ())),
            working_directory=_working_directory(
                inputs.get("working_directory", "."), fill.working_directory
            ),
            input_files=known.input_files,
            stdin=known.stdin,
            secrets=dict(inputs.get("secrets", ())),
        ),
        sandbox=known.sandbox,
        outputs=known.outputs,
        metadata=_metadata(document.get("metadata", {}), fill),
        determinism=known.determinism,
        session=document.get("session"),
        filled=known.filled,
    )


def _working_directory(written: str, base: str) -> str:
    return written if written == SCRATCH else absolute(written, base)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _sandbox(sandbox: Mapping[str, Json]) -> SandboxRequest:
    if not sandbox:
        return NOTHING_ASKED
    filesystem: Mapping[str, Json] = sandbox.get("filesystem", {})
    network: Mapping[str, Json] = sandbox.get("network", {})
    processes: Mapping[str, Json] = sandbox.get("processes", {})
    return SandboxRequest(
        timeout_ms=sandbox.get("timeout_ms"),
        memory_mb=sandbox.get("memory_mb"),
        cpu_cores=sandbox.get("cpu_cores"),
        filesystem=FilesystemRequest(
            level=FilesystemLevel(filesystem["level"]) if "level" in filesystem else None,
            read=_listed(filesystem, "read"),
            write=_listed(filesystem, "write"),
            deny=_listed(filesystem, "deny") or (),
        ),
        network=NetworkRequest(
            level=NetworkLevel(network["level"]) if "level" in network else None,
            enabled=network.get("enabled"),
            allow=_listed(network, "allow"),
            deny=_listed(network, "deny") or (),
        ),
        processes=ProcessRequest(
            max_children=processes.get("max_children"),
            allow_fork=processes.get("allow_fork"),
        ),
    )


def _listed(section: Mapping[str, Json], name: str) -> tuple[str, ...] | None:
    """An empty list asks for nothing; a list that is not there asks for the level's own."""
    return tuple(section[name]) if name in section else None


def _outputs(outputs: Mapping[str, Json]) -> ExpectedOutputs:
    if not outputs:
        return NOTHING_EXPECTED
    return ExpectedOutputs(
        stdout=StreamMode(outputs.get("stdout", StreamMode.CAPTURED)),
        stderr=StreamMode(outputs.get("stderr", StreamMode.CAPTURED)),
        exit_code=outputs.get("exit_code"),
        output_files=tuple(outputs.get("output_files", ())),
        artifacts=tuple(
            ArtifactSpec(name=item, path=item) if isinstance(item, str) else ArtifactSpec(**item)
            for item in outputs.get("artifacts", ())
        ),
    )


def _metadata(metadata: Mapping[str, Json], fill: Fill) -> Metadata:
    written = metadata.get("requested_at")
    return Metadata(
        requested_by=metadata.get("requested_by", fill.requested_by),
        requested_at=(timestamp(written) if written else None) or fill.requested_at,
        purpose=metadata.get("purpose", fill.purpose),
        evidence_ref=metadata.get("evidence_ref"),
    )
