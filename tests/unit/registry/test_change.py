"""Change control: who decided what, on what evidence, and whether the tool may now do more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actum.errors import ContractInvalid, Refused
from actum.registry.approval_workflow import (
    approve,
    block,
    deprecate,
    grants,
    history,
    propose,
    scope_change,
    unblock,
)
from actum.registry.digest import folder_digest
from actum.registry.load import load_tool
from actum.registry.model import Change, ScopeChange, ToolStatus

DECISION = {"by": "user:ada", "evidence": "REV-7", "date": "2026-11-15"}
Edit = Callable[[str, str, str], None]


def last(repository: Any) -> Change:
    return history(repository.root, repository.keyring.trusted)[-1]


def test_a_proposal_says_what_would_be_pinned_and_changes_nothing(repository: Any) -> None:
    folder = repository.folder("ripgrep")
    proposal = propose(repository.root, folder)
    assert proposal.problems == ()
    assert proposal.tool == load_tool(folder)
    assert proposal.digest == folder_digest(folder)
    assert [adapter.adapter_id for adapter in proposal.adapters] == ["ADP-001"]
    assert not (repository.root / "tools.lock").exists()


def test_a_malformed_folder_is_proposed_with_its_problems_and_cannot_be_approved(
    repository: Any, edit: Edit
) -> None:
    edit("ripgrep/tool.yaml", "owner: platform\n", "")
    assert [problem.field for problem in repository.problems("ripgrep")] == ["owner"]
    with pytest.raises(ContractInvalid):
        approve(repository.root, repository.keyring, "ripgrep", **DECISION)
    assert not (repository.root / "tools.lock").exists()


def test_ids_that_another_tool_has_are_problems_of_a_proposal(repository: Any, edit: Edit) -> None:
    edit("ripgrep/tool.yaml", "tool_id: TL-003", "tool_id: TL-010")
    adapter = "ripgrep/adapters/ripgrep-search.yaml"
    edit(adapter, "tool_id: TL-003", "tool_id: TL-010")
    edit(adapter, "adapter_id: ADP-001", "adapter_id: ADP-012")
    found = {(problem.field, problem.value) for problem in repository.problems("ripgrep")}
    assert found == {("tool_id", "TL-010"), ("adapter_id", "ADP-012")}


@pytest.mark.req("000-191")
@pytest.mark.parametrize("missing", ["by", "evidence"])
@pytest.mark.parametrize("decide", [approve, deprecate, block])
def test_a_decision_without_a_name_or_evidence_is_refused(
    pinned: Any, decide: Callable[..., object], missing: str
) -> None:
    before = (pinned.root / "tools.lock").read_bytes()
    with pytest.raises(Refused, match=missing) as refused:
        decide(pinned.root, pinned.keyring, "TL-003", **{**DECISION, missing: " "})
    assert refused.value.code == "APPROVAL_INCOMPLETE"
    assert (pinned.root / "tools.lock").read_bytes() == before


def test_a_decision_without_a_real_date_is_refused(repository: Any) -> None:
    with pytest.raises(Refused, match="date"):
        approve(repository.root, repository.keyring, "TL-003", **{**DECISION, "date": "today"})


@pytest.mark.req("000-191")
def test_the_history_keeps_every_decision_in_order(pinned: Any) -> None:
    digest = folder_digest(pinned.folder("ripgrep"))
    deprecate(
        pinned.root, pinned.keyring, "TL-003", by="user:bob", evidence="R8", date="2026-12-01"
    )
    block(pinned.root, pinned.keyring, "ripgrep", by="user:eve", evidence="R9", date="2026-12-02")
    same = {"tool_id": "TL-003", "version": "1.1.0", "digest": digest, "role": "any"}
    assert history(pinned.root, pinned.keyring.trusted, "TL-003") == (
        Change(
            action="approve",
            by="user:ada",
            date="2026-11-15",
            evidence="REV-7",
            status=ToolStatus.ACTIVE,
            scope_change=ScopeChange.EXPANDED,
            **same,
        ),
        Change(
            action="deprecate",
            by="user:bob",
            date="2026-12-01",
            evidence="R8",
            status=ToolStatus.DEPRECATED,
            scope_change=ScopeChange.UNCHANGED,
            **same,
        ),
        Change(
            action="block",
            by="user:eve",
            date="2026-12-02",
            evidence="R9",
            status=ToolStatus.BLOCKED,
            scope_change=ScopeChange.UNCHANGED,
            **same,
        ),
    )
    assert history(pinned.root, pinned.keyring.trusted, "TL-010") == ()


def test_only_what_is_pinned_can_be_withdrawn(pinned: Any) -> None:
    with pytest.raises(Refused) as refused:
        block(pinned.root, pinned.keyring, "TL-010", **DECISION)
    assert refused.value.code == "TOOL_NOT_APPROVED"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("owner: platform", "owner: others", ScopeChange.UNCHANGED),
        ("    - rg\n", "    - rg\n    - rga\n", ScopeChange.EXPANDED),
        ("    - rg\n", "    - rga\n", ScopeChange.EXPANDED),
        ("network: off", "network: on", ScopeChange.EXPANDED),
        ("data_access: read", "data_access: write", ScopeChange.EXPANDED),
        ("allowed: []", "allowed: [token]", ScopeChange.EXPANDED),
        ("max_memory_mb: 1024", "max_memory_mb: 2048", ScopeChange.EXPANDED),
        ("    max_memory_mb: 1024\n", "", ScopeChange.EXPANDED),
        ("max_memory_mb: 1024", "max_memory_mb: 512", ScopeChange.REDUCED),
        ("[LANG, ", "[", ScopeChange.REDUCED),
        ("[LANG, ", "[HTTP_PROXY, LANG, ", ScopeChange.EXPANDED),
        ("data_access: read", "data_access: none", ScopeChange.REDUCED),
        ("runner: local", "runner: remote", ScopeChange.EXPANDED),
    ],
)
def test_whether_a_tool_may_now_do_more_is_written_into_its_history(
    pinned: Any, edit: Edit, old: str, new: str, expected: ScopeChange
) -> None:
    edit("ripgrep/tool.yaml", old, new)
    pinned.approve("TL-003")
    assert last(pinned).scope_change is expected


def test_adding_and_removing_at_once_is_an_expansion(repository: Any) -> None:
    former = grants(load_tool(repository.folder("ripgrep")))
    new = {**former, "environment": [], "hosts": ["example.com"]}
    assert scope_change(former, new) is ScopeChange.EXPANDED
    assert scope_change(former, former) is ScopeChange.UNCHANGED
    assert scope_change({}, former) is ScopeChange.EXPANDED


def test_a_name_moves_to_another_tool_id_only_after_the_old_one_is_deprecated(
    pinned: Any, edit: Edit
) -> None:
    edit("ripgrep/tool.yaml", "tool_id: TL-003", "tool_id: TL-103")
    edit("ripgrep/adapters/ripgrep-search.yaml", "tool_id: TL-003", "tool_id: TL-103")
    with pytest.raises(Refused) as refused:
        pinned.approve("TL-103")
    assert refused.value.code == "TOOL_NAME_TAKEN"
    deprecate(pinned.root, pinned.keyring, "TL-003", **DECISION)
    pinned.approve("TL-103")
    assert pinned.registry().entry("ripgrep", None).tool.tool_id == "TL-103"
    with pytest.raises(Refused) as gone:
        pinned.registry().entry("TL-003", None)
    assert gone.value.code == "TOOL_UNKNOWN"


def blocked(repository: Any) -> bool:
    with pytest.raises(Refused) as refused:
        repository.registry().entry("ripgrep", None)
    return refused.value.code == "TOOL_NOT_ACTIVE" and "is blocked" in refused.value.message


def test_a_block_holds_whatever_else_is_decided_until_it_is_lifted(pinned: Any, edit: Edit) -> None:
    block(pinned.root, pinned.keyring, "TL-003", **DECISION)
    assert blocked(pinned)
    pinned.approve("TL-003")
    assert blocked(pinned)
    edit("ripgrep/tool.yaml", "owner: platform", "owner: others")
    assert blocked(pinned)  # also while the folder is another one
    pinned.approve("TL-003")
    assert last(pinned).status is ToolStatus.BLOCKED
    deprecate(pinned.root, pinned.keyring, "TL-003", **DECISION)
    assert blocked(pinned)
    pinned.approve("ripgrep")
    assert blocked(pinned)
    pin = unblock(pinned.root, pinned.keyring, "ripgrep", **DECISION)
    assert pin.status is ToolStatus.ACTIVE
    entry = pinned.registry().entry("ripgrep", None)
    assert entry.tool.owner == "others"  # what was approved meanwhile
    assert [each.action for each in history(pinned.root, pinned.keyring.trusted)] == [
        *("approve", "block", "approve", "approve", "deprecate", "approve", "unblock")
    ]


def test_a_tool_that_was_deprecated_last_is_so_after_its_block(pinned: Any) -> None:
    block(pinned.root, pinned.keyring, "TL-003", **DECISION)
    deprecate(pinned.root, pinned.keyring, "TL-003", **DECISION)
    pin = unblock(pinned.root, pinned.keyring, "TL-003", **DECISION)
    assert pin.status is ToolStatus.DEPRECATED


def test_neither_another_id_nor_another_name_gets_around_a_block(pinned: Any, edit: Edit) -> None:
    block(pinned.root, pinned.keyring, "TL-003", **DECISION)
    adapter = "ripgrep/adapters/ripgrep-search.yaml"
    edit("ripgrep/tool.yaml", "tool_id: TL-003", "tool_id: TL-103")
    edit(adapter, "tool_id: TL-003", "tool_id: TL-103")
    with pytest.raises(Refused) as refused:
        pinned.approve("TL-103")
    assert refused.value.code == "TOOL_BLOCKED"
    edit("ripgrep/tool.yaml", "tool_id: TL-103", "tool_id: TL-003")
    edit(adapter, "tool_id: TL-103", "tool_id: TL-003")
    edit("ripgrep/tool.yaml", "name: ripgrep\n", "name: other\n")
    pinned.folder("ripgrep").rename(pinned.folder("other"))
    with pytest.raises(Refused) as refused:
        pinned.approve("other")
    assert refused.value.code == "TOOL_BLOCKED"


def test_only_what_is_blocked_can_be_unblocked(pinned: Any) -> None:
    with pytest.raises(Refused) as refused:
        unblock(pinned.root, pinned.keyring, "TL-003", **DECISION)
    assert refused.value.code == "TOOL_NOT_BLOCKED"
