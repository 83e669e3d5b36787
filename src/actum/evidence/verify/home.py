"""Compares everything in a home with its signed log. Only this module knows the order.

    journal -> database file -> log -> receipts -> evidence records, files, traces, executions
            -> open actions, reviews, bound tables, work items, transactions
            -> files of the home

Each table is read once, row by row, from one snapshot; nothing is written. Files of transactions
are read at the moment of the snapshot, while no commit is under way. An unreadable table is a
finding, and the other tables are checked all the same. Without a checkpoint stored elsewhere,
records cut off the end of the log cannot be noticed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from actum.errors import EvidenceUnavailable
from actum.evidence.records.bound_rows import BOUND
from actum.evidence.verify.findings import Finding, guarded
from actum.evidence.verify.home_files import home_file_findings
from actum.evidence.verify.log_findings import LogReading, checkpoint_findings, read_log, size_of
from actum.evidence.verify.tables.action_rows import action_findings
from actum.evidence.verify.tables.blob_rows import Listed, file_findings
from actum.evidence.verify.tables.database_file import database_findings
from actum.evidence.verify.tables.execution_rows import execution_findings
from actum.evidence.verify.tables.logged_rows import logged_findings
from actum.evidence.verify.tables.receipt_rows import Signed, missing_receipts, receipt_findings
from actum.evidence.verify.tables.record_rows import record_findings
from actum.evidence.verify.tables.review_rows import review_findings
from actum.evidence.verify.tables.trace_rows import trace_findings
from actum.evidence.verify.tables.work_rows import work_findings
from actum.evidence.verify.transaction_files import (
    KeptTransactions,
    look_at_transactions,
    standing_still,
    transaction_findings,
)
from actum.evidence.verify.unbound import Unbound
from actum.evidence.verify.unwritten import reading
from actum.evidence.verify.work_files import ClosedRun, work_file_findings
from actum.store.keys import PublicKey, Signer
from actum.store.snapshot import Snapshot

Trusted = Mapping[str, PublicKey]


def verify_home(
    home: Path, signer: Signer, trusted: Trusted, checkpoint: tuple[str, str] | None = None
) -> tuple[Finding, ...]:
    """`signer` is the key of this home: the journal can be read with it alone. `checkpoint` is one
    stored elsewhere: its text and its name."""
    try:
        with ExitStack() as opened:
            with standing_still(home):
                database, journal = opened.enter_context(reading(home, signer))
                kept = look_at_transactions(home)
            return (journal, *_findings(database, home, trusted, checkpoint, kept))
    except EvidenceUnavailable as error:
        return (Finding("database", "readable", False, error.message),)


def _findings(
    database: Snapshot,
    home: Path,
    trusted: Trusted,
    checkpoint: tuple[str, str] | None,
    transactions: KeptTransactions,
) -> Iterator[Finding]:
    yield from guarded("database", "readable", database_findings(database))
    wanted = size_of(checkpoint[0]) if checkpoint else None
    try:
        log = read_log(database, trusted, wanted)
    except EvidenceUnavailable as error:
        # A damaged page. The log cannot be read, so there is nothing to compare with.
        yield Finding("audit log", "readable", False, error.message)
        return
    yield from log.findings
    if checkpoint:
        yield from checkpoint_findings(checkpoint[0], log, trusted, checkpoint[1])
    for subject, findings in _tables(database, home, trusted, log, transactions):
        yield from guarded(subject, "readable", findings)


def _tables(
    database: Snapshot,
    home: Path,
    trusted: Trusted,
    log: LogReading,
    transactions: KeptTransactions,
) -> Iterator[tuple[str, Iterator[Finding]]]:
    """The passes, ordered by their inputs."""
    facts, signed, listed, unbound = log.facts, Signed(), Listed(), Unbound()
    runs: dict[str, ClosedRun] = {}
    yield "table receipts", receipt_findings(database, log, trusted, signed)
    yield "table evidence_records", record_findings(database, signed, listed)
    yield "table blobs", file_findings(database, home, listed, facts.removed)
    yield "table trace_events", trace_findings(database, signed)
    yield "table executions", execution_findings(database, signed.answers, facts.unclosed)
    yield "table open_actions", action_findings(database, facts.actions, unbound)
    yield "table executor_reviews", review_findings(database, log, trusted)
    yield "table work_receipts", work_findings(database, log, trusted, runs)
    for table in BOUND:
        yield f"table {table}", logged_findings(database, table, facts, unbound)
    yield "audit log", missing_receipts(log)
    yield "files of work items", work_file_findings(home, runs, trusted, unbound)
    kept = transaction_findings(transactions, database, signed.transactions, facts.changes, unbound)
    yield "files of transactions", kept
    yield "files of the home", home_file_findings(home, database, unbound)
    yield "rows", unbound.findings()
