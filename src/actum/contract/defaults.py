"""From a `Draft` to a `Contract`: missing fields are filled in once and marked as filled.

This module reads no clock, environment, user name or randomness. All of it comes in through
`Fill`, so that the same draft and the same fill always give the same contract.
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
    ChangesMode,
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
    """The values for fields that the requester left out."""

    execution_id: str
    requested_at: datetime
    requested_by: str
    purpose: str
    working_directory: str  #: absolute; base of relative ones in the draft
    adapter_id: str | None = None  #: ``None``: the registry picks one later


def complete(draft: Draft, fill: Fill) -> Contract:
    """Fill in missing fields and freeze the contract."""
    document = draft.document
    inputs: Mapping[str, Json] = document["inputs"]
    metadata: Mapping[str, Json] = document.get("metadata", {})
    missing = [name for name in ("execution_id", "adapter_id") if name not in document]
    if "working_directory" not in inputs:
        missing.append("inputs.working_directory")
    expected = ("requested_by", "requested_at", "purpose")
    missing += [f"metadata.{name}" for name in expected if name not in metadata]
    stdin, written = inputs.get("stdin"), inputs.get("working_directory", ".")
    requested_at = metadata.get("requested_at")
    return Contract(
        execution_id=document.get("execution_id", fill.execution_id),
        tool_id=document["tool_id"],
        adapter_id=document.get("adapter_id", fill.adapter_id),
        inputs=Inputs(
            command=inputs["command"],
            arguments=tuple(inputs.get("arguments", ())),
            parameters={**inputs.get("parameters", {})},
            environment={**inputs.get("environment", {})},
            working_directory=(
                SCRATCH if written == SCRATCH else absolute(written, fill.working_directory)
            ),
            input_files=tuple(inputs.get("input_files", ())),
            stdin=from_base64(stdin["base64"]) if isinstance(stdin, dict) else _encoded(stdin),
            secrets={**inputs.get("secrets", {})},
        ),
        sandbox=_sandbox(document.get("sandbox", {})),
        outputs=_outputs(document.get("outputs", {})),
        metadata=Metadata(
            requested_by=metadata.get("requested_by", fill.requested_by),
            requested_at=(timestamp(requested_at) if requested_at else None) or fill.requested_at,
            purpose=metadata.get("purpose", fill.purpose),
            evidence_ref=metadata.get("evidence_ref"),
        ),
        determinism=Determinism(document.get("determinism", Determinism.D0)),
        session=document.get("session"),
        filled=frozenset(missing),
    )


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
            changes=ChangesMode(filesystem["changes"]) if "changes" in filesystem else None,
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
    """An empty list requests nothing; a missing list requests the level's own."""
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
