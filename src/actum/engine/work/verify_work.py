"""What `actum verify --all` says of work items beyond their records: the state of the project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from actum.engine.work.history import WorkHistory
from actum.engine.work.index_findings import index_findings
from actum.engine.work.intent_findings import intent_findings
from actum.engine.work.recover import interrupted_findings
from actum.errors import EvidenceUnavailable
from actum.evidence.findings import Finding, guarded
from actum.evidence.unwritten import reading
from actum.store.keys import PublicKey, Signer


def work_state_findings(
    home: Path, signer: Signer, trusted: Mapping[str, PublicKey]
) -> Iterator[Finding]:
    """Runs and commits that were interrupted and that no command has ended yet, and the index.
    Writes nothing."""
    if not (home / "work").is_dir():
        return
    try:
        with reading(home, signer) as (database, _journal):
            found = interrupted_findings(home, WorkHistory(database))
            yield from guarded("interrupted work runs", "readable", found)
    except EvidenceUnavailable:
        return  # `verify_home` has said so
    yield from guarded("file intent.json", "readable", intent_findings(home, trusted))
    yield from guarded("index of the project", "readable", index_findings(home))
