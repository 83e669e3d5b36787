"""Approvers: who may decide about tools, access and settings (`[approvers]` of actum.toml).

An approver has a name, an identity (a user of the operating system, or the key that signs in the
home where the decision is made) and roles. A decision outside one's roles is refused. Without the
section, any user who may write the project decides, and the record of each decision says so.
The approved section counts, never the file as it is at the moment: callers pass pinned values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from actum.contract.os_user import OsUser
from actum.errors import Refused
from actum.value import field, value

SECTION = "approvers"
#: The role on record where there are no approvers: any user who may write the project.
ANY_USER = "any"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")
_KEY_ID = re.compile(r"[0-9a-f]{64}")
PERMITTED = '{ user = "ada", roles = ["tools", "access", "settings"] }, or key = "ID" for user'


class Role(StrEnum):
    TOOLS = "tools"  #: `actum tools approve`, `deprecate`, `block`, `unblock`
    ACCESS = "access"  #: `actum approvals approve`, `deny`
    SETTINGS = "settings"  #: `actum config approve`


@value
class Approver:
    roles: tuple[str, ...]
    user: str | None = None  #: name of a user of the operating system
    key: str | None = None  #: id of a signing key


@value
class Approvers:
    """Those of one project, by name; none: any user decides."""

    listed: Mapping[str, Approver] = field(default_factory=dict)

    def require(self, by: str, role: Role, *, user: OsUser, key_ids: tuple[str, ...]) -> str:
        """The role for the record; raises `Refused` unless `by` has it and is that person.

        `key_ids` are those of the key that signs, the current form first.
        """
        if not self.listed:
            return ANY_USER
        found = self.listed.get(person(by))
        if found is None:
            raise Refused(
                "APPROVER_UNKNOWN",
                f"[approvers] of actum.toml does not name {by}.",
                remedy=f"Someone with the role {role} decides: {self._having(role)}.",
            )
        if found.user not in (None, user.name) or found.key not in (None, *key_ids):
            asked = f"user {found.user}" if found.user is not None else f"key {found.key}"
            raise Refused(
                "APPROVER_IDENTITY",
                f"[approvers] of actum.toml ties {by} to the {asked}; this process runs as user"
                f" {user.name} and signs with key {key_ids[0]}.",
                remedy=f"Let {by} decide, or name yourself in --by.",
            )
        if role not in found.roles:
            raise Refused(
                "ROLE_MISSING",
                f"{by} has the roles {', '.join(found.roles) or 'none'} in [approvers] of"
                f" actum.toml, and this decision needs {role}.",
                remedy=f"Someone with the role {role} decides: {self._having(role)}.",
            )
        return role.value

    def _having(self, role: Role) -> str:
        names = sorted(name for name, found in self.listed.items() if role in found.roles)
        return ", ".join(names) or "no approver has it"

    def has(self, role: Role) -> bool:
        return not self.listed or any(role in found.roles for found in self.listed.values())


def approvers_of(values: Mapping[str, Any]) -> Approvers:
    """From settings by their whole name, `approvers.ada`, as a pin or a file holds them."""
    listed = {}
    for setting, given in values.items():
        section, _, name = setting.partition(".")
        if section == SECTION:
            listed[person(name)] = Approver(
                roles=tuple(given["roles"]), user=given.get("user"), key=given.get("key")
            )
    return Approvers(listed=listed)


def problem_with(name: str, given: Any) -> str:
    """What is wrong with one entry of the section; empty if nothing is."""
    if not _NAME.fullmatch(name):
        return "the name is not of letters, digits and . _ @ + -"
    if not isinstance(given, dict) or not set(given) <= {"user", "key", "roles"}:
        return "is not a table of `user` or `key`, and `roles`"
    roles = given.get("roles")
    if not isinstance(roles, list) or not all(role in list(Role) for role in roles) or not roles:
        return f"`roles` is not a list of {', '.join(Role)}"
    identities = [given[name] for name in ("user", "key") if name in given]
    if len(identities) != 1 or not isinstance(identities[0], str) or not identities[0]:
        return "needs a `user` or a `key`, and not both"
    if "key" in given and not _KEY_ID.fullmatch(given["key"]):
        return "`key` is not the id of a key; `actum keys show` prints it"
    return ""


def person(who: str) -> str:
    """One person, however the name is written."""
    return who.casefold().removeprefix("user:")
