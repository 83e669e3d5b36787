"""`actum.toml` and the environment, read once into frozen `Settings`. Only wiring and doors see it.

The file is part of what governs, so it is read strictly: an unknown key is an error, not a guess.
"""

from __future__ import annotations

import os
import pwd
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from actum.contract.egress import split_address
from actum.contract.levels import split_port
from actum.contract.model import RunnerKind
from actum.errors import ContractInvalid, Problem, Refused
from actum.secrets.sources import Source, problem_with, source_of
from actum.value import value

FILE_NAME = "actum.toml"
HOME_NAME = ".actum"

_WORK_ENGINES = ("auto", "overlay", "copy")
_KEYS: Mapping[str, Mapping[str, type]] = {
    "runners": {"local": bool, "docker": bool, "remote": bool},
    "trust": {"keys": list},
    "filesystem": {"dependencies": list},
    "network": {"registries": list, "apis": list},
    "egress": {
        "ca_file": str,
        "resolve": dict,
        "max_connections": int,
        "max_at_once": int,
        "max_mb": int,
    },
    "mcp": {"websocket": bool},
    "limits": {"max_concurrent": int, "max_queued": int, "max_wait_s": int, "max_sessions": int},
    "work": {"exclusive": bool, "engine": str},
    "secrets": {},  # names of the project's own, each with its source
}
#: Inclusive bounds of the numbers.
_RANGES: Mapping[str, tuple[int, int]] = {
    "limits.max_concurrent": (1, 1_000),
    "limits.max_queued": (0, 100_000),
    "limits.max_wait_s": (0, 86_400),
    "limits.max_sessions": (0, 1_000),
    "egress.max_connections": (1, 1_000_000),
    "egress.max_at_once": (1, 30_000),
    "egress.max_mb": (1, 1_048_576),
}


@value
class Settings:
    """One project: where it is, what it enables, whom it trusts."""

    root: Path  #: the directory of actum.toml, called the repo root in the contracts
    home: Path  #: .actum/, never visible to a tool
    runners: frozenset[RunnerKind]
    trusted_keys: tuple[str, ...]  #: public keys (PEM) whose pins count here, beside our own
    dependencies: tuple[str, ...]  #: folders that filesystem level `extended` may read
    #: hosts of network level `registry`: those of actum.toml, else of this host's package clients
    registries: tuple[str, ...]
    apis: tuple[str, ...]  #: hosts of network level `api`
    resolve: Mapping[str, str]  #: "host:port" -> "address:port", for private names
    mcp_websocket: bool  #: whether MCP servers may be reached by a transport of no standard
    ca_file: str | None  #: certificate authorities that tools trust beside the system's
    login: str
    max_concurrent: int  #: sandboxes at work at once, of one `Runtime`
    max_queued: int  #: requests that may wait for one; more are refused
    max_wait_s: float  #: and for how long
    max_sessions: int  #: sandboxes kept open between calls
    egress_connections: int  #: of one execution, in all
    egress_at_once: int
    egress_mb: int  #: of one execution, both directions together
    work_exclusive: bool  #: only work items change the project's files
    work_engine: str  #: how their changes are kept apart: auto, overlay or copy
    secrets: Mapping[str, Source]  #: where each comes from; no value is ever in the settings


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
        _require_outermost(found)
    owner = found.stat(follow_symlinks=False).st_uid
    # A planted .actum/ above a shared directory would decide what runs, and hold the keys.
    if owner != os.geteuid():
        raise Refused(
            "HOME_NOT_OURS",
            f"{found} belongs to uid {owner}, not to the caller (uid {os.geteuid()}).",
            remedy="Use your own project, or give its path with --home.",
        )
    return found.resolve()


def _require_outermost(found: Path) -> None:
    """A tool may write in the project, keys and approvals of its own making included: what it left
    in a folder must not govern whoever works there next."""
    for folder in found.parent.parents:
        outer = folder / HOME_NAME
        # Only the caller's own: others may have planted one above a directory that many share.
        if (
            outer.is_dir()
            and (folder / FILE_NAME).is_file()
            and outer.stat(follow_symlinks=False).st_uid == os.geteuid()
        ):
            raise Refused(
                "HOME_NESTED",
                f"{found} lies inside another project ({folder}), whose tools could have made it.",
                remedy=f"If it is yours, give --home {found}; if not, remove it.",
            )


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
    runners, limits = values.get("runners", {}), values.get("limits", {})
    return Settings(
        root=root,
        home=home,
        runners=frozenset(kind for kind in RunnerKind if runners.get(kind.value, False)),
        trusted_keys=tuple(values.get("trust", {}).get("keys", ())),
        dependencies=tuple(
            str((root / path).resolve())
            for path in values.get("filesystem", {}).get("dependencies", ())
        ),
        registries=_registries(values.get("network", {}), environment),
        apis=tuple(values.get("network", {}).get("apis", ())),
        resolve={
            name.lower(): place
            for name, place in values.get("egress", {}).get("resolve", {}).items()
        },
        mcp_websocket=values.get("mcp", {}).get("websocket", False),
        ca_file=_path(root, values.get("egress", {}).get("ca_file")),
        login=login_of(environment),
        max_concurrent=limits.get("max_concurrent", 2 * (os.cpu_count() or 1)),
        max_queued=limits.get("max_queued", 4_000),
        max_wait_s=limits.get("max_wait_s", 600),
        max_sessions=limits.get("max_sessions", 32),
        egress_connections=values.get("egress", {}).get("max_connections", 10_000),
        egress_at_once=values.get("egress", {}).get("max_at_once", 2_000),
        egress_mb=values.get("egress", {}).get("max_mb", 8_192),
        work_exclusive=values.get("work", {}).get("exclusive", False),
        work_engine=values.get("work", {}).get("engine", "auto"),
        secrets={
            name: source_of(value, project=str(root), user_home=environment.get("HOME", "/root"))
            for name, value in values.get("secrets", {}).items()
        },
    )


def _registries(network: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Only what the host and the user have set: a file in the project could be a tool's work."""
    if "registries" in network:
        return tuple(network["registries"])
    home = Path(environment.get("HOME", "/nonexistent"))
    urls = [environment.get(name, "") for name in _REGISTRY_VARIABLES]
    ini = (*_PIP_FILES, home / ".config/pip/pip.conf", home / ".pip/pip.conf")
    npm = (*_NPM_FILES, home / ".npmrc")
    apt = (_APT / "sources.list", *sorted((_APT / "sources.list.d").glob("*.list")))
    deb822 = sorted((_APT / "sources.list.d").glob("*.sources"))
    for pattern, files in (
        (_PIP_LINE, ini),
        (_NPM_LINE, npm),
        (_APT_LINE, apt),
        (_DEB822_LINE, deb822),
    ):
        for file in files:
            urls += pattern.findall(_text(file))
    found = {host for text in urls for url in text.split() if (host := _registry_host(url))}
    return tuple(sorted(found))


_REGISTRY_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "npm_config_registry")
_PIP_FILES = (Path("/etc/pip.conf"), Path("/etc/xdg/pip/pip.conf"))
_NPM_FILES = (Path("/etc/npmrc"), Path("/usr/etc/npmrc"))
_APT = Path("/etc/apt")
#: One value may go on over indented lines.
_PIP_LINE = re.compile(r"^(?:extra-)?index-url\s*[=:]\s*(.*(?:\n[ \t]+.+)*)", re.MULTILINE)
_NPM_LINE = re.compile(r"^(?:@[^:=\s]+:)?registry\s*=\s*(.+)", re.MULTILINE)
_APT_LINE = re.compile(r"^deb(?:-src)?\s+(?:\[[^\]]*\]\s+)?(\S+)", re.MULTILINE)
_DEB822_LINE = re.compile(r"^URIs:\s*(.*(?:\n[ \t]+.+)*)", re.MULTILINE | re.IGNORECASE)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""  # not configured here, or not for us to read


def _registry_host(url: str) -> str:
    """`host`, or `host:port` where the address names one; nothing for a folder on this machine."""
    try:
        parts = urlsplit(url.strip("\"'"))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host:
        return ""
    return f"{host}:{port}" if port else host


def login_of(environment: Mapping[str, str]) -> str:
    """Who asks, as far as the system knows; a user without an entry is a number."""
    if name := environment.get("LOGNAME"):
        return name
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid-{os.geteuid()}"


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
        elif section == "secrets":
            for name, value in entries.items():
                if problem := problem_with(name, value):
                    report(f"secrets.{name}", problem, '{ env = "NAME" }')
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
                elif kind is int and not _is_within(value, *_RANGES[field]):
                    least, most = _RANGES[field]
                    report(field, f"is {value!r}", f"integer {least}..{most}")
                elif kind is list and not (
                    isinstance(value, list) and all(isinstance(item, str) for item in value)
                ):
                    report(field, f"is {value!r}", "a list of strings")
                elif field == "work.engine" and value not in _WORK_ENGINES:
                    report(field, f"is {value!r}", ", ".join(_WORK_ENGINES))
                elif field == "egress.resolve":
                    for host, place in value.items():
                        if not _is_place(host, place):
                            wrong = f"{host!r} = {place!r} cannot be read"
                            report(field, wrong, '"host:port" = "address:port"')
    return found


def _is_within(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most  # true is an int, and no number


def _is_place(name: str, place: str) -> bool:
    host, port = split_port(name)
    try:
        split_address(place)
    except ValueError:
        return False
    return bool(host) and port.isdecimal() and 0 < int(port) < 65_536
