"""Actions that may be requested, the executor of each, and the profiles that may use them.

An action names its executor, the minimum version and the capabilities that it must declare: this
module decides about compatibility, not an executor. Every registered executor is also an action of
its own name. A project adds actions and restricts profiles in `executors/actions.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from actum.contract.canonical import sha256_json
from actum.contract.model import Json
from actum.errors import ContractInvalid, Problem
from actum.executors.model import ACTION, Declaration
from actum.value import field, value

FILE_NAME = "actions.toml"
DEFAULT_PROFILE = "default"
_ACTION_KEYS = {
    "executor": str,
    "description": str,
    "action_version": str,
    "min_executor_version": str,
    "required_capabilities": list,
}


@value
class Action:
    name: str
    executor_id: str
    description: str = ""
    action_version: str | None = None  #: an action without a valid version is blocked
    min_executor_version: str | None = None
    required_capabilities: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wanted = sorted({name.strip().upper() for name in self.required_capabilities})
        object.__setattr__(self, "required_capabilities", tuple(wanted))

    def document(self) -> dict[str, Json]:
        return {
            "executor": self.executor_id,
            "description": self.description,
            "action_version": self.action_version,
            "min_executor_version": self.min_executor_version,
            "required_capabilities": list(self.required_capabilities),
        }


@value(slots=False)
class Profile:
    """Which actions a caller may use; ``None``: every known one."""

    profile_id: str
    allow: tuple[str, ...] | None = None

    @cached_property
    def hash(self) -> str:
        return sha256_json({"profile_id": self.profile_id, "allow": self.allow})

    def allows(self, action: str) -> bool:
        return self.allow is None or action in self.allow


@value(slots=False)
class Actions:
    actions: Mapping[str, Action]
    profiles: Mapping[str, Profile] = field(
        default_factory=lambda: {DEFAULT_PROFILE: Profile(profile_id=DEFAULT_PROFILE)}
    )

    @cached_property
    def fingerprint(self) -> str:
        """Changes when any action does."""
        return sha256_json({name: each.document() for name, each in self.actions.items()})


#: Further names of the shipped executors.
SHIPPED = (
    Action(
        name="process",
        executor_id="text_process",
        description="Change the case or the spacing of a text.",
        action_version="1.0.0",
        min_executor_version="1.0.0",
        required_capabilities=("TEXT_PROCESSING",),
    ),
    Action(
        name="composite_run",
        executor_id="composite_plan",
        description="Carry out a plan of several actions, one after the other.",
        action_version="1.0.0",
        min_executor_version="1.0.0",
        required_capabilities=("PLANNING",),
    ),
)


def of_its_own(declared: Declaration) -> Action:
    """The action with an executor's own name."""
    return Action(
        name=declared.executor_id,
        executor_id=declared.executor_id,
        action_version=declared.version,
        min_executor_version=declared.version,
        required_capabilities=declared.capabilities,
    )


def load(folder: Path, executors: Iterable[Declaration]) -> Actions:
    """Shipped actions, one per executor, then those of the project, which cannot replace them."""
    actions = {action.name: action for action in SHIPPED}
    actions |= {declared.executor_id: of_its_own(declared) for declared in executors}
    profiles = {DEFAULT_PROFILE: Profile(profile_id=DEFAULT_PROFILE)}
    file = folder / FILE_NAME
    if file.is_file():
        written, narrowed = _read(file, frozenset(actions))
        actions |= written
        profiles |= narrowed
    return Actions(actions=actions, profiles=profiles)


def _read(file: Path, taken: frozenset[str]) -> tuple[dict[str, Action], dict[str, Profile]]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ContractInvalid((Problem(field="", message=str(error), file=str(file)),)) from error
    problems = [
        Problem(field=name, message=message, permitted=permitted, file=str(file))
        for name, message, permitted in _problems(document, taken)
    ]
    if problems:
        raise ContractInvalid(tuple(problems))
    actions = {
        name: Action(
            name=name,
            executor_id=entry["executor"],
            description=entry.get("description", ""),
            action_version=entry.get("action_version"),
            min_executor_version=entry.get("min_executor_version"),
            required_capabilities=tuple(entry.get("required_capabilities", ())),
        )
        for name, entry in document.get("actions", {}).items()
    }
    profiles = {
        name: Profile(profile_id=name, allow=tuple(entry["allow"]))
        for name, entry in document.get("profiles", {}).items()
    }
    return actions, profiles


def _problems(document: Mapping[str, Any], taken: frozenset[str]) -> Iterable[tuple[str, str, str]]:
    for section, entries in document.items():
        if section not in ("actions", "profiles") or not isinstance(entries, dict):
            yield section, "is not a section of actions.toml", "[actions.NAME], [profiles.NAME]"
            continue
        for name, entry in entries.items():
            where = f"{section}.{name}"
            if not isinstance(entry, dict):
                yield where, "must be a table", f"[{where}]"
            elif section == "actions":
                yield from _action_problems(where, name, entry, taken)
            elif set(entry) != {"allow"} or not _texts(entry["allow"]):
                yield where, "must have `allow`, a list of actions, and nothing else", "allow"


def _action_problems(
    where: str, name: str, entry: Mapping[str, Any], taken: frozenset[str]
) -> Iterable[tuple[str, str, str]]:
    if not ACTION.fullmatch(name):
        yield where, "is not a name for an action", "lower case, words joined by _ or ."
    if name in taken:
        yield where, "is taken by a registered executor or a shipped action", "another name"
    if "executor" not in entry:
        yield f"{where}.executor", "is missing", "the id of a registered executor"
    for key, given in entry.items():
        kind = _ACTION_KEYS.get(key)
        if kind is None:
            yield f"{where}.{key}", "is unknown; remove it", ", ".join(_ACTION_KEYS)
        elif kind is list and not _texts(given):
            yield f"{where}.{key}", f"is {given!r}", "a list of texts"
        elif kind is str and not isinstance(given, str):
            yield f"{where}.{key}", f"is {given!r}", "a text"


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
