"""Findings of `actum verify --all` about work items beyond their records: the project's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from actum.errors import EvidenceUnavailable
from actum.evidence.verify.findings import Finding, guarded
from actum.evidence.verify.unwritten import reading
from actum.store.keys import PublicKey, Signer
from actum.work.history import WorkHistory
from actum.work.index_findings import index_findings
from actum.work.intent_findings import intent_findings
from actum.work.work_recovery import interrupted_findings


def work_state_findings(
    home: Path, signer: Signer, trusted: Mapping[str, PublicKey]
) -> Iterator[Finding]:
    """Interrupted runs and commits that no command has recovered yet, and the index. Writes
    nothing."""
    if not (home / "work").is_dir():
        return
    try:
        with reading(home, signer) as (database, _journal):
            found = interrupted_findings(home, WorkHistory(database))
            yield from guarded("interrupted work runs", "readable", found)
    except EvidenceUnavailable:
        return  # `verify_home` reports it
    yield from guarded("file intent.json", "readable", intent_findings(home, trusted))
    yield from guarded("index of the project", "readable", index_findings(home))
