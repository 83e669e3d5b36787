"""The port between the rules of the ledger (`actum.runs.run_ledger`) and the tables' database.

The rules are written once, in SQL that every implementation understands: parameters are ``?``. The
contract of every implementation, which `tests/conformance/ledger_suite.py` checks:

1. *One write is one transaction.* If its body raises, nothing of it is stored.
2. *One record per write.* The record is in the audit log of this process before the rows can be
   read by others.
3. *Serialised where it matters.* A row that a write has read with `locking`, or updated, does not
   change until the write has ended; of two claims in one folder one sees the other.
4. *A body may be called again*: the connection was lost, and the first call stored nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from actum.contract.model import Json
from actum.errors import EvidenceUnavailable
from actum.store.keys import Signer
from actum.store.snapshot import Reader

T = TypeVar("T")


class StoreUnreachable(EvidenceUnavailable):
    """The database did not answer for longer than a store waits."""

    code = "RUNS_STORE_UNREACHABLE"


class Transaction(Protocol):
    """One write."""

    @property
    def signer(self) -> Signer:
        """Signs everything in this transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Returns the number of rows that were changed."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None: ...

    def lock_folder(self, run_id: str) -> None:
        """Hold back other claims of runs of the same folder until this transaction has ended."""

    def bound(self, table: str, *key: str | int) -> dict[str, Json]:
        """One row as an audit record binds it (`evidence.records.bound_rows`)."""

    def append(self, document: dict[str, Json], rows: Sequence[dict[str, Json]]) -> None:
        """Add the audit record of this transaction, which binds `rows`; the last call of a body."""


class LedgerStore(Reader, Protocol):
    """Holds the tables of the ledger."""

    #: What a SELECT ends with whose row may not change until the transaction has ended.
    locking: str
    #: SQL condition: `agent_runs` and `other` are runs of the same folder.
    same_folder: str
    #: SQL condition: the folder of the run `agent_runs` is the one of this project.
    here: str

    def write(self, body: Callable[[Transaction], T]) -> T:
        """Call `body` in a transaction, commit, and return its result."""
