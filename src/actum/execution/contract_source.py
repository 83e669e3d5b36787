"""A contract in any form that a caller may bring, parsed strictly and completed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actum.contract.defaults import Fill, complete
from actum.contract.ids import new_id
from actum.contract.model import Contract
from actum.contract.parse import Draft, parse_contract
from actum.errors import ContractInvalid, Problem
from actum.execution.quantities import unreadable
from actum.execution.services import Services

AnyContract = Contract | Draft | Mapping[str, Any] | str | bytes | Path


def contract_from(
    source: AnyContract, services: Services, *, requested_by: str, directory: str
) -> Contract:
    """The contract that `source` means. A malformed one is put on record and raises.

    `requested_by` and `directory` fill what it leaves out.
    """
    if isinstance(source, Contract):
        return source
    if not isinstance(source, (Draft, Mapping, str, bytes, Path)):
        raise unreadable("contract", source, "a mapping, YAML text, bytes, or a pathlib.Path")
    draft = source if isinstance(source, Draft) else _parsed(source, services)
    fill = Fill(
        execution_id=new_id(),
        requested_at=services.clock(),
        requested_by=requested_by,
        purpose=f"actum exec {draft.document['tool_id']}",
        working_directory=directory,
    )
    return complete(draft, fill)


def _parsed(source: Mapping[str, Any] | str | bytes | Path, services: Services) -> Draft:
    try:
        return parse_contract(source)
    except ContractInvalid as error:
        services.ledger.malformed(_bytes_of(source), services.clock())
        if isinstance(source, str) and Path(source.strip()).suffix in (".yaml", ".yml", ".json"):
            hint = Problem(field="contract", message="text is a contract; name a file by Path.")
            raise ContractInvalid((*error.problems, hint)) from error
        raise


def _bytes_of(source: Mapping[str, Any] | str | bytes | Path) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, Path):
        return source.read_bytes() if source.is_file() else b""
    return source.encode() if isinstance(source, str) else repr(source).encode()
