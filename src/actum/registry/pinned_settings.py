"""Settings are approved like tools: those that run or open something are pinned in `tools.lock`.

`differences` compares, `approve_settings` signs, and `ApprovedSettings` refuses every execution
whose settings were not approved. `settings_file` declares which keys need an approval.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from actum.contract.approvers import Role, approvers_of
from actum.contract.canonical import sha256_json
from actum.contract.model import Json
from actum.contract.os_user import OsUser
from actum.errors import ContractInvalid, Refused, Violation
from actum.registry.approval_workflow import deciding
from actum.registry.digest import file_clock_ns
from actum.registry.lock import Lock, read_lock
from actum.registry.model import SettingsChange, SettingsPin
from actum.settings_file import Approval, SettingsFile, key_of, read_settings
from actum.store.anchor import read_anchor, write_anchor
from actum.store.keys import Keyring, PublicKey, named_keys
from actum.value import replace, value

_APPROVE = "`actum config approve --by WHO`"
_COMMANDS = f"`actum config diff` shows what changed; {_APPROVE} approves it."
#: A lock without settings was written by an earlier version, whose `init` set one of these. They
#: grant a tool no more than its pin does.
_SINCE_BEFORE = ("runners.local", "runners.docker")


@value
class Difference:
    """One setting that differs from its approved value."""

    setting: str
    old: Json  #: as approved, or the default
    new: Json
    because: str  #: why it matters


@value
class SettingsState:
    """`actum.toml` compared with its approval."""

    differences: tuple[Difference, ...]
    approval: SettingsPin | None
    unapproved_keys: tuple[str, ...]  #: ids of `trust.keys` not yet trusted in this home
    lock_trusted: bool

    @property
    def approved(self) -> bool:
        return self.lock_trusted and not self.differences


def differences(
    approved: Mapping[str, Json], current: Mapping[str, Json]
) -> tuple[Difference, ...]:
    """The settings in `current` that the approval of `approved` does not cover."""
    return tuple(each for each in changes(approved, current) if not _narrows(each))


def changes(former: Mapping[str, Json], current: Mapping[str, Json]) -> Iterator[Difference]:
    """All differences, narrowing ones included."""
    for setting in sorted({*former, *current}):
        key = key_of(setting)
        default = None if key is None else key.default
        old, new = former.get(setting, default), current.get(setting, default)
        if new != old:
            because = "this version does not know the setting" if key is None else key.because
            yield Difference(setting=setting, old=old, new=new, because=because)


def _narrows(change: Difference) -> bool:
    key = key_of(change.setting)
    return key is not None and key.approval is Approval.CEILING and change.new < change.old


def settings_state(file: SettingsFile, home: Path) -> SettingsState:
    """Compare the file with the approval in `tools.lock`, if its signer is trusted here."""
    trust = file.get("trust", "keys")
    trusted = Keyring.open(home, trust=trust).approving
    unapproved = tuple(key.keyid for key in named_keys(trust) if key.keyid not in trusted)
    try:
        lock = read_lock(file.root, trusted)
    except Refused:
        return SettingsState(
            differences=differences({}, file.approvable),
            approval=None,
            unapproved_keys=unapproved,
            lock_trusted=False,
        )
    return SettingsState(
        differences=differences(_approved(lock, file, home), file.approvable),
        approval=lock.settings,
        unapproved_keys=unapproved,
        lock_trusted=True,
    )


def approve_settings(
    root: Path, home: Path, *, by: str, user: OsUser, date: str, why: str = ""
) -> tuple[Difference, ...]:
    """Pin the current settings of `actum.toml`. Returns the differences.

    Keys that the file newly trusts count from now on, also for a lock that they signed.
    """
    file = read_settings(root)
    if file.get("egress", "ca_file") is not None and file.authorities is None:
        raise Refused(
            "SETTINGS_UNFIT",
            f"egress.ca_file: {file.get('egress', 'ca_file')} is not a readable text of"
            " certificates, so its content cannot be approved.",
            remedy="Correct the path, or remove the setting.",
        )
    if not approvers_of(file.approvable).has(Role.SETTINGS):
        raise Refused(
            "SETTINGS_UNFIT",
            "approvers: no entry has the role settings, so no later change could be approved.",
            remedy='Give one of them "settings" in its roles.',
        )
    keys = named_keys(file.get("trust", "keys"))
    keyring = Keyring.open(home)
    trusted: dict[str, PublicKey] = {**keyring.approving, **{key.keyid: key for key in keys}}
    with deciding(root, keyring, by=by, evidence=why or "none given", date=date) as decision:
        lock = decision.read(trusted)
        role = decision.role_of(by, Role.SETTINGS, lock, user)
        _require_fit_prefixes(file, lock)
        former = {} if lock.settings is None else lock.settings.values
        changed = tuple(changes(former, file.approvable))
        # Write the anchor first: without it a foreign key's lock would not count after a crash.
        write_anchor(home, (key.keyid for key in keys))
        if lock.settings is None or changed:
            pinned = _pinned(lock, file, changed, by=by, user=user, date=date, why=why, role=role)
            decision.write(pinned)
    return changed


def _require_fit_prefixes(file: SettingsFile, lock: Lock) -> None:
    from actum.registry.interpreter_prefix import SETTING, problem_with  # few files list any

    for prefix in file.get("interpreters", "prefixes"):
        problem = problem_with(prefix, project=str(file.root), writable=lock.writable(file.root))
        if problem:
            raise Refused(
                "SETTINGS_UNFIT",
                f"{SETTING}: {problem}.",
                remedy="Correct the list in actum.toml; nothing was approved.",
            )


def _pinned(
    lock: Lock,
    file: SettingsFile,
    changed: tuple[Difference, ...],
    *,
    by: str,
    user: OsUser,
    date: str,
    why: str,
    role: str,
) -> Lock:
    who: dict[str, Any] = {
        "approver": by,
        "user": user.name,
        "uid": user.uid,
        "date": date,
        "why": why,
        "role": role,
    }
    change = SettingsChange(
        changed=tuple(each.setting for each in changed),
        sha256=sha256_json(dict(file.approvable)),
        **who,
    )
    return replace(
        lock,
        settings=SettingsPin(values=dict(file.approvable), **who),
        settings_history=(*lock.settings_history, change),
    )


def _approved(lock: Lock, file: SettingsFile, home: Path) -> Mapping[str, Json]:
    """The values that count as approved."""
    if lock.settings is not None:
        return lock.settings.values
    # Only in a home where settings were never approved: an older lock without settings, put back
    # in place of one with settings, approves none.
    if read_anchor(home) is None:
        return {name: file.approvable[name] for name in _SINCE_BEFORE if name in file.approvable}
    return {}


class ApprovedSettings:
    """Checks before every execution that the settings in use are approved and that the file still
    holds them. Safe to share between threads."""

    def __init__(self, in_force: SettingsFile, home: Path, lock: Callable[[], Lock]) -> None:
        self._in_force = in_force
        self._home = home
        self._lock = lock
        self._files = in_force.watched
        #: Replaced as a whole, so it needs no lock.
        self._passed: tuple[Lock, tuple[_Stamp | None, ...]] | None = None

    @property
    def sha256(self) -> str:
        """Of the settings in use that need an approval, as in `SettingsChange`."""
        return sha256_json(dict(self._in_force.approvable))

    def require(self) -> Lock | None:
        """The lock that approves them; raises `Refused` unless both hold. ``None``: the lock
        itself is refused, and the registry gives the reason."""
        try:
            lock = self._lock()
        except Refused as refusal:
            self._require_known_keys(refusal)
            return None
        passed = self._passed
        files = self._files
        if passed is not None and passed[0] is lock and passed[1] == _stamps(files):
            return lock
        # Read the clock first: a later change is stamped no earlier than this.
        tick = file_clock_ns()
        stamps = _stamps(files)
        self._judge(lock)
        settled = all(stamp is None or stamp[-1] < tick for stamp in stamps)
        self._passed = (lock, stamps) if settled and _stamps(files) == stamps else None
        return lock

    def _judge(self, lock: Lock) -> None:
        file = self._read_again()
        approved = _approved(lock, file, self._home)
        if changed := differences(approved, file.approvable):
            raise _changed(changed, lock)
        if differences(approved, self._in_force.approvable):
            raise Refused(
                "SETTINGS_CHANGED",
                "actum.toml was changed and approved since this process read it.",
                remedy="Open the project again.",
            )
        if lock.settings is not None:
            self._follow(file)

    def _read_again(self) -> SettingsFile:
        try:
            return read_settings(self._in_force.root)
        except (Refused, ContractInvalid, OSError) as error:
            raise Refused(
                "SETTINGS_CHANGED",
                f"actum.toml was changed and cannot be read: {error}",
                remedy="Correct it. " + _COMMANDS,
            ) from error

    def _follow(self, file: SettingsFile) -> None:
        """A trusted key's approval counts, including the keys that it names."""
        keys = frozenset(key.keyid for key in named_keys(file.get("trust", "keys")))
        anchor = read_anchor(self._home)
        if anchor is None or anchor.keys != keys:  # also where an older version wrote its ids
            write_anchor(self._home, keys)

    def _require_known_keys(self, refusal: Refused) -> None:
        trust = self._in_force.get("trust", "keys")
        anchor = read_anchor(self._home)
        known = anchor.keys if anchor else frozenset()
        unknown = [key.keyid for key in named_keys(trust) if known.isdisjoint(key.ids)]
        if not unknown:
            return
        raise Refused(
            "SETTINGS_CHANGED",
            "trust.keys: not approved in this home: " + ", ".join(unknown) + ".",
            remedy=f"{refusal.message} If you trust the owners of the keys: {_APPROVE}.",
        ) from refusal


_Stamp = tuple[int, ...]


def _stamps(files: tuple[str, ...]) -> tuple[_Stamp | None, ...]:
    """Stamps that change whenever one of the files does; the ctime is the last item of each."""
    found: list[_Stamp | None] = []
    for file in files:
        try:
            s = os.stat(file)
        except OSError:
            found.append(None)
        else:
            found.append((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns))
    return tuple(found)


def _changed(changed: tuple[Difference, ...], lock: Lock) -> Refused:
    names = ", ".join(each.setting for each in changed)
    if lock.settings is None:
        message = (
            f"actum.toml: {names}: these settings were never approved. tools.lock is of a version"
            " without settings; they are approved once."
        )
    else:
        message = f"actum.toml: {names}: changed and not approved."
    return Refused(
        "SETTINGS_CHANGED",
        message,
        remedy=_COMMANDS,
        violations=tuple(
            Violation(
                code="SETTINGS_CHANGED",
                field=each.setting,
                value="",
                message=f"{each.setting} differs from its approval: {each.because}. {_COMMANDS}",
            )
            for each in changed
        ),
    )
