"""Change control: how a tool folder is pinned, and how a pin is withdrawn.

`propose` changes nothing. `approve`, `deprecate`, `block` and `unblock` rewrite the signed lock,
each with a record of who decided, on what evidence, and whether the tool may now do more than
before. They refuse to sign on top of a lock that no trusted key signed. A block holds, for the id
and for the name of the tool, until `unblock` lifts it; no other decision does. Dates are
arguments: this module reads no clock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date as calendar_date
from pathlib import Path

from actum.contract.approvers import Approvers, Role, approvers_of
from actum.contract.image_reference import HOST
from actum.contract.model import Json
from actum.contract.os_user import OsUser, os_user
from actum.errors import ContractInvalid, Problem, Refused
from actum.registry.approved_content import ApprovedContent
from actum.registry.digest import read_folder
from actum.registry.load import load_snapshot
from actum.registry.lock import Lock, read_lock, write_lock
from actum.registry.model import Adapter, Change, Pin, ScopeChange, Tool, ToolStatus
from actum.registry.registry import Registry
from actum.store.keys import Keyring, PublicKey, Signer, current_signer
from actum.value import replace, value


@value
class Proposal:
    """What an approval would pin, or the problems that prevent it."""

    folder: Path
    digest: str
    files: Mapping[str, str]
    tool: Tool | None = None
    adapters: tuple[Adapter, ...] = ()
    problems: tuple[Problem, ...] = ()


def propose(root: Path, folder: Path, registry: Registry | None = None) -> Proposal:
    """Validate `folder` as a tool of the repository at `root`. Changes nothing.

    A `registry` that several proposals share parses each other tool once.
    """
    snapshot = read_folder(folder)
    seen = Proposal(folder=folder, digest=snapshot.digest, files=snapshot.files)
    try:
        loaded = load_snapshot(snapshot)
    except ContractInvalid as invalid:
        return replace(seen, problems=invalid.problems)
    others = registry or Registry(root, {})
    problems = tuple(_clashes(others, folder, loaded.tool, loaded.adapters))
    return replace(seen, tool=loaded.tool, adapters=loaded.adapters, problems=problems)


def _clashes(
    registry: Registry, folder: Path, tool: Tool, adapters: tuple[Adapter, ...]
) -> Iterator[Problem]:
    own = {adapter.adapter_id for adapter in adapters}
    for other in registry.tools():
        if Path(other.folder).resolve() == folder.resolve() or (
            (other.tool_id, other.name) == (tool.tool_id, tool.name)
        ):
            continue
        if other.tool_id == tool.tool_id:
            yield Problem(
                field="tool_id",
                message=f"the folder {other.folder} already has it; choose another.",
                value=tool.tool_id,
                file=str(folder / "tool.yaml"),
            )
        taken = own & {adapter.adapter_id for adapter in registry.adapters(other)}
        for adapter_id in sorted(taken):
            yield Problem(
                field="adapter_id",
                message=f"the tool {other.name} has an adapter with it; choose another.",
                value=adapter_id,
                file=str(folder / "adapters"),
            )


def approve(
    root: Path,
    keyring: Keyring,
    tool_id: str,
    *,
    by: str,
    evidence: str,
    date: str,
    status: ToolStatus = ToolStatus.ACTIVE,
    registry: Registry | None = None,
) -> Pin:
    """Pin the folder of this tool with its current contents. A blocked tool stays blocked."""
    (pin,) = approve_together(
        root,
        keyring,
        (tool_id,),
        by=by,
        evidence=evidence,
        date=date,
        status=status,
        registry=registry,
    )
    return pin


def approve_together(
    root: Path,
    keyring: Keyring,
    tool_ids: Iterable[str],
    *,
    by: str,
    evidence: str,
    date: str,
    status: ToolStatus = ToolStatus.ACTIVE,
    registry: Registry | None = None,
) -> tuple[Pin, ...]:
    """`approve` for several tools in one decision: the lock has all of them, or none."""
    registry = registry or Registry(root, keyring.approving)
    proposals = []
    for tool_id in tool_ids:
        proposal = propose(root, Path(registry.find_tool(tool_id).folder), registry)
        if proposal.problems:
            raise ContractInvalid(proposal.problems)
        proposals.append(proposal)
    pins = tuple(_pin(each, status, by, date, evidence) for each in proposals)

    def pinned(lock: Lock, role: str) -> Lock:
        for pin in pins:
            lock = _with_pin(lock, replace(pin, role=role))
        return lock

    # Before the lock: a pin whose content is missing can only be compared by digests.
    content = ApprovedContent(keyring.directory.parent)
    for proposal in proposals:
        content.keep(proposal.folder, proposal.files)
    lock = _decide(root, keyring, by, evidence, date, pinned)
    made = {pin.tool_id: pin for pin in lock.pins}
    return tuple(made[pin.tool_id] for pin in pins)


def _pin(proposal: Proposal, status: ToolStatus, by: str, date: str, evidence: str) -> Pin:
    tool = proposal.tool
    assert tool is not None  # noqa: S101 -- a proposal without problems has one
    return Pin(
        tool_id=tool.tool_id,
        name=tool.name,
        version=tool.version,
        digest=proposal.digest,
        status=status,
        approver=by,
        date=date,
        evidence=evidence,
        adapters={adapter.adapter_id: adapter.version for adapter in proposal.adapters},
        files=proposal.files,
        grants=grants(tool),
    )


def _with_pin(lock: Lock, pin: Pin) -> Lock:
    former = next((each for each in lock.pins if each.tool_id == pin.tool_id), None)
    holder = next((each for each in lock.pins if each.name == pin.name), None)
    _require_no_blocked_name(pin, former, holder)
    if holder is not None and holder.tool_id != pin.tool_id:
        if holder.status is not ToolStatus.DEPRECATED:
            raise Refused(
                "TOOL_NAME_TAKEN",
                f"The name {pin.name} is pinned for {holder.tool_id}.",
                remedy=f"Rename the tool, or first: `actum tools deprecate {holder.tool_id}`.",
            )
        lock = lock.without(holder.tool_id)
    change = scope_change(former.grants if former else {}, pin.grants)
    if former is not None and former.status is ToolStatus.BLOCKED:
        pin = replace(pin, status=ToolStatus.BLOCKED)
    return lock.record(pin, _change("approve", pin, change))


def _require_no_blocked_name(new: Pin, former: Pin | None, holder: Pin | None) -> None:
    """Refuse another id for a blocked name and another name for a blocked id: either would let a
    tool run again that a person has blocked."""
    for pin in (former, holder):
        if (
            pin is not None
            and pin.status is ToolStatus.BLOCKED
            and (pin.tool_id, pin.name) != (new.tool_id, new.name)
        ):
            raise Refused(
                "TOOL_BLOCKED",
                f"{pin.tool_id} is blocked under the name {pin.name}, so {new.tool_id} cannot be"
                f" approved as {new.name}.",
                remedy="Use another id and name, or first:"
                f" `actum tools unblock {pin.name} --why TEXT`.",
            )


def deprecate(
    root: Path, keyring: Keyring, tool_id: str, *, by: str, evidence: str, date: str
) -> Pin:
    """Withdraw the right to run and mark the tool as no longer to be used."""
    return _withdraw(root, keyring, tool_id, ToolStatus.DEPRECATED, by, evidence, date)


def block(root: Path, keyring: Keyring, tool_id: str, *, by: str, evidence: str, date: str) -> Pin:
    """Withdraw the right to run at once, until `unblock` lifts the block."""
    return _withdraw(root, keyring, tool_id, ToolStatus.BLOCKED, by, evidence, date)


def unblock(
    root: Path, keyring: Keyring, tool_id: str, *, by: str, evidence: str, date: str
) -> Pin:
    """Lift a block. The latest approval or deprecation, also one made meanwhile, applies again."""

    def lifted(lock: Lock, role: str) -> Lock:
        former = lock.pin(tool_id)
        if former is None or former.status is not ToolStatus.BLOCKED:
            raise Refused(
                "TOOL_NOT_BLOCKED",
                f"The tool {tool_id} is not blocked.",
                remedy="`actum tools list` shows the blocked tools.",
            )
        last = next(
            (
                change.action
                for change in reversed(lock.history)
                if change.tool_id == former.tool_id and change.action in ("approve", "deprecate")
            ),
            "deprecate",
        )
        status = ToolStatus.ACTIVE if last == "approve" else ToolStatus.DEPRECATED
        pin = replace(former, status=status)
        change = _change("unblock", pin, ScopeChange.UNCHANGED)
        return lock.record(pin, replace(change, by=by, evidence=evidence, date=date, role=role))

    lock = _decide(root, keyring, by, evidence, date, lifted)
    return next(pin for pin in lock.pins if tool_id in (pin.tool_id, pin.name))


def history(
    root: Path, trusted: Mapping[str, PublicKey], tool_id: str | None = None
) -> tuple[Change, ...]:
    """The decisions about a tool (or about all), oldest first."""
    changes = read_lock(root, trusted).history
    return tuple(change for change in changes if tool_id in (None, change.tool_id))


def _withdraw(
    root: Path,
    keyring: Keyring,
    tool_id: str,
    status: ToolStatus,
    by: str,
    evidence: str,
    date: str,
) -> Pin:
    def withdrawn(lock: Lock, role: str) -> Lock:
        former = lock.pin(tool_id)
        if former is None:
            raise Refused(
                "TOOL_NOT_APPROVED",
                f"The tool {tool_id} is not pinned in tools.lock, so it cannot run anyway.",
                remedy="`actum tools list` shows the pinned tools.",
            )
        # The pin keeps approver, date and evidence of its approval; the history has this decision.
        is_blocked = former.status is ToolStatus.BLOCKED
        pin = former if is_blocked else replace(former, status=status)
        change = _change(_ACTIONS[status], pin, ScopeChange.UNCHANGED)
        return lock.record(pin, replace(change, by=by, evidence=evidence, date=date, role=role))

    lock = _decide(root, keyring, by, evidence, date, withdrawn)
    return next(pin for pin in lock.pins if tool_id in (pin.tool_id, pin.name))


_ACTIONS = {ToolStatus.DEPRECATED: "deprecate", ToolStatus.BLOCKED: "block"}


def _change(action: str, pin: Pin, scope: ScopeChange) -> Change:
    return Change(
        tool_id=pin.tool_id,
        action=action,
        by=pin.approver,
        date=pin.date,
        evidence=pin.evidence,
        version=pin.version,
        digest=pin.digest,
        status=pin.status,
        scope_change=scope,
        role=pin.role,
    )


def _decide(
    root: Path,
    keyring: Keyring,
    by: str,
    evidence: str,
    date: str,
    decision: Callable[[Lock, str], Lock],
) -> Lock:
    with deciding(root, keyring, by=by, evidence=evidence, date=date) as deciding_now:
        former = deciding_now.read(keyring.approving)
        lock = decision(former, deciding_now.role_of(by, Role.TOOLS, former, os_user()))
        deciding_now.write(lock)
    return lock


@value
class Deciding:
    """The lock file, locked against other decisions."""

    root: Path
    signer: Signer

    def read(self, trusted: Mapping[str, PublicKey]) -> Lock:
        return read_lock(self.root, trusted)

    def role_of(self, by: str, role: Role, lock: Lock, user: OsUser) -> str:
        """The role for the record; raises unless the approvers that `lock` pins permit it."""
        return approvers_in(lock).require(by, role, user=user, key_ids=self.signer.public.ids)

    def write(self, lock: Lock) -> None:
        write_lock(self.root, lock, self.signer)


def approvers_in(lock: Lock) -> Approvers:
    """The approvers that were approved."""
    return approvers_of({} if lock.settings is None else lock.settings.values)


@contextmanager
def deciding(
    root: Path, keyring: Keyring, *, by: str, evidence: str, date: str
) -> Iterator[Deciding]:
    """Lock the lock file for one decision, which names its author, evidence and date."""
    for field, given in (("by", by), ("evidence", evidence)):
        if not given.strip():
            raise Refused(
                "APPROVAL_INCOMPLETE",
                f"{field}: it is empty; a decision needs an author and evidence.",
                remedy="Give `--by WHO --evidence REF`.",
            )
    try:
        calendar_date.fromisoformat(date[:10])
    except ValueError as error:
        raise Refused(
            "APPROVAL_INCOMPLETE",
            f"date: {date!r} is not an ISO 8601 date.",
            remedy="Write it like 2026-01-16.",
        ) from error
    with one_decision(keyring.directory):
        # Read again under the lock: a lock signed by a retired key is refused everywhere.
        yield Deciding(root=root, signer=current_signer(keyring.directory))


@contextmanager
def one_decision(hidden: Path) -> Iterator[None]:
    """Serialise decisions: two at once would each write the lock without the other's.

    Locks a directory that tools do not see: a process that can read a file can lock it, and a
    tool could so prevent people from blocking it while it runs.
    """
    descriptor = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def grants(tool: Tool) -> dict[str, Json]:
    """Everything that a pin of this tool permits, each as a list: more items, more permission."""
    scope, permissions = tool.scope, tool.permissions
    access = {"none": [], "read": ["read"], "write": ["read", "write"]}[scope.data_access]
    return {
        "commands": sorted(scope.commands),
        "endpoints": sorted(scope.endpoints),
        "data_access": access,
        "network": ["on"] if scope.network else [],
        "hosts": sorted(scope.hosts),
        "filesystem": sorted(scope.filesystem),
        "outbound": sorted(permissions.outbound),
        "read": sorted(scope.filesystem if permissions.read is None else permissions.read),
        "write": sorted(scope.filesystem if permissions.write is None else permissions.write),
        "secrets": sorted(permissions.secrets),
        "environment": sorted(tool.environment),
        "path": sorted(tool.path),
        "servers": sorted(tool.servers),
        "packages": [] if tool.packages_path is None else [tool.packages_path],
        "workspace": ["direct"] if tool.workspace in ("direct", "either") else [],
        "runner": [permissions.runner.value],
        "image": [] if tool.image == HOST else [tool.image],
        "max_duration_sec": permissions.max_duration_s,
        "max_memory_mb": permissions.max_memory_mb,
        "max_cpu_cores": permissions.max_cpu_cores,
    }


def scope_change(former: Mapping[str, Json], new: Mapping[str, Json]) -> ScopeChange:
    """Expanded if anything was added, whatever was removed."""
    if any(_exceeds(new[name], former.get(name, [])) for name in new):
        return ScopeChange.EXPANDED
    if any(_exceeds(former[name], new.get(name, [])) for name in former):
        return ScopeChange.REDUCED
    return ScopeChange.UNCHANGED


def _exceeds(new: Json, former: Json) -> bool:
    if isinstance(new, list) and isinstance(former, list):
        return not set(new) <= set(former)
    if new is None or former is None:  # no ceiling is the highest
        return new is None and former is not None
    return bool(new != former if isinstance(former, list) else new > former)
