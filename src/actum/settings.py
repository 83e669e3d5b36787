"""`actum.toml` and the environment, read once into frozen `Settings`. Only wiring and doors see it.

The file is part of what governs, so it is read strictly: an unknown key is an error, not a guess.
"""

from __future__ import annotations

import getpass
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actum.contract.model import RunnerKind
from actum.errors import ContractInvalid, Problem, Refused

FILE_NAME = "actum.toml"
HOME_NAME = ".actum"

_KEYS: Mapping[str, Mapping[str, type]] = {
    "runners": {"local": bool, "docker": bool, "remote": bool},
    "trust": {"keys": list},
    "filesystem": {"dependencies": list},
    "network": {"registries": list, "apis": list},
    "egress": {"ca_file": str, "resolve": dict},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One project: where it is, what it enables, whom it trusts."""

    root: Path  #: the directory of actum.toml, called the repo root in the contracts
    home: Path  #: .actum/, never visible to a tool
    runners: frozenset[RunnerKind]
    trusted_keys: tuple[str, ...]  #: public keys (PEM) whose pins count here, beside our own
    dependencies: tuple[str, ...]  #: folders that filesystem level `extended` may read
    registries: tuple[str, ...]  #: hosts of network level `registry`
    apis: tuple[str, ...]  #: hosts of network level `api`
    resolve: Mapping[str, str]  #: "host:port" -> "address:port", for private names
    ca_file: str | None  #: certificate authorities that tools trust beside the system's
    login: str


def discover(start: Path, home: Path | None = None) -> Path:
    """The project's `.actum`: the one given, else the nearest upwards; it must be the caller's."""
    if home is not None:
        found = home if home.name == HOME_NAME else home / HOME_NAME
        if not found.is_dir():
            raise _no_project(f"{found} does not exist.")
    else:
        candidates = (folder / HOME_NAME for folder in (start, *start.parents))
        nearest = next((folder for folder in candidates if folder.is_dir()), None)
        if nearest is None:
            raise _no_project(f"There is no {HOME_NAME}/ in {start} or above it.")
        found = nearest
    owner = found.stat(follow_symlinks=False).st_uid
    # A planted .actum/ above a shared directory would decide what runs, and hold the keys.
    if owner != os.geteuid():
        raise Refused(
            "HOME_NOT_OURS",
            f"{found} belongs to uid {owner}, not to the caller (uid {os.geteuid()}).",
            remedy="Use your own project, or give its path with --home.",
        )
    return found.resolve()


def _no_project(message: str) -> Refused:
    return Refused(
        "NO_PROJECT",
        message,
        remedy="Run `actum init` here, give --home, or use `actum try` without any set-up.",
    )


def load(home: Path, environment: Mapping[str, str]) -> Settings:
    """Read the project's settings. The environment only says who is asking."""
    root = home.parent
    file = root / FILE_NAME
    values = _read(file)
    runners = values.get("runners", {})
    return Settings(
        root=root,
        home=home,
        runners=frozenset(kind for kind in RunnerKind if runners.get(kind.value, False)),
        trusted_keys=tuple(values.get("trust", {}).get("keys", ())),
        dependencies=tuple(
            str((root / path).resolve())
            for path in values.get("filesystem", {}).get("dependencies", ())
        ),
        registries=tuple(values.get("network", {}).get("registries", ())),
        apis=tuple(values.get("network", {}).get("apis", ())),
        resolve=values.get("egress", {}).get("resolve", {}),
        ca_file=_path(root, values.get("egress", {}).get("ca_file")),
        login=environment.get("LOGNAME") or getpass.getuser(),
    )


def _path(root: Path, value: str | None) -> str | None:
    return None if value is None else str((root / value).resolve())


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as source:
            values = tomllib.load(source)
    except FileNotFoundError as error:
        raise _no_project(f"{file} does not exist.") from error
    except tomllib.TOMLDecodeError as error:
        raise ContractInvalid((Problem(field="", message=str(error), file=str(file)),)) from error
    problems = tuple(_problems(values, str(file)))
    if problems:
        raise ContractInvalid(problems)
    return values


def _problems(values: Mapping[str, Any], file: str) -> list[Problem]:
    found: list[Problem] = []

    def report(field: str, message: str, permitted: str) -> None:
        found.append(Problem(field=field, message=message, permitted=permitted, file=file))

    for section, entries in values.items():
        known = _KEYS.get(section)
        if known is None:
            report(section, "is not a section of actum.toml", ", ".join(_KEYS))
        elif not isinstance(entries, dict):
            report(section, "must be a table", f"[{section}]")
        else:
            for name, value in entries.items():
                field, kind = f"{section}.{name}", known.get(name)
                if kind is None:
                    report(field, "is not a setting", ", ".join(known))
                elif kind is str and not isinstance(value, str):
                    report(field, f"is {value!r}", "a string")
                elif kind is dict and not (
                    isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
                ):
                    report(field, f"is {value!r}", "a table of strings")
                elif kind is bool and not isinstance(value, bool):
                    report(field, f"is {value!r}", "true or false")
                elif kind is list and not (
                    isinstance(value, list) and all(isinstance(item, str) for item in value)
                ):
                    report(field, f"is {value!r}", "a list of strings")
    return found
