"""`actum.toml` as written: every key, its type, its default, and which values need approval.

The file governs executions, so it is read strictly: an unknown key is an error, not a guess.
A key cannot be declared without its approval rule. `settings` says what the values mean for a
process.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from actum.contract import approvers, path_patterns, run_store
from actum.contract.canonical import sha256_bytes
from actum.contract.egress import split_address
from actum.contract.levels import split_port
from actum.contract.model import Json
from actum.errors import ContractInvalid, Problem, Refused
from actum.secrets.sources import problem_with
from actum.value import field, value

FILE_NAME = "actum.toml"
#: The default of `[protect] names`: anywhere in a writable folder, with all contents.
PROTECTED_NAMES = (
    ".gitmodules",
    ".gitattributes",
    ".envrc",
    ".vscode",
    ".idea",
    ".claude",
    ".cursor",
    ".mcp.json",
    ".github/workflows",
)
#: The default of `[workspace] last_wins`: files that tools can generate again, under names that
#: nothing else has. `build`, `dist` and `out` are missing: in many projects they hold sources.
LAST_WINS = (
    *("__pycache__/", "*.pyc", ".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/"),
    *("**/node_modules/.cache/", ".parcel-cache/", ".turbo/", "*.tsbuildinfo"),
    *("**/target/debug/", "**/target/release/", ".gradle/", "*.log", ".coverage"),
)
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "work.engine": ("auto", "overlay", "copy"),
    "workspace.changes": ("transaction", "direct"),
    "workspace.engine": ("auto", "overlay", "copy"),
    "workspace.on_stop": ("discard", "commit"),
}
_CA_FILE_BYTES = 4 * 1_048_576


class Approval(StrEnum):
    """Which values of a key need an approval before anything runs."""

    EXACT = "exact"  #: every value but the approved one
    CEILING = "ceiling"  #: values above the approved one; true is above false
    FREE = "free"  #: none


@value(kw_only=False)
class Key:
    """One key of actum.toml."""

    kind: type
    approval: Approval
    because: str  #: what the key runs, opens or limits
    default: Json = None
    least: int = 0
    most: int = 0


_EXACT, _CEILING, _FREE = Approval.EXACT, Approval.CEILING, Approval.FREE

#: The whole file, by section and name. A key that is left out is approved as its default.
KEYS: Mapping[str, Mapping[str, Key]] = {
    "runners": {
        "local": Key(bool, _CEILING, "tools run in this host's sandbox", default=False),
        "docker": Key(bool, _CEILING, "tools run in containers", default=False),
        "remote": Key(bool, _CEILING, "tools run on another machine", default=False),
    },
    "docker": {
        "host": Key(str, _EXACT, "this engine makes the containers of tools"),
        "runtime": Key(str, _EXACT, "this program of the engine starts them"),
    },
    "trust": {
        "keys": Key(list, _EXACT, "what these keys sign may run", default=[]),
    },
    "filesystem": {
        "dependencies": Key(list, _EXACT, "tools can read these folders", default=[]),
    },
    "interpreters": {
        "prefixes": Key(list, _EXACT, "tools execute the programs in these folders", default=[]),
    },
    "network": {
        "registries": Key(list, _EXACT, "tools can reach these hosts"),
        "apis": Key(list, _EXACT, "tools can reach these hosts", default=[]),
    },
    "egress": {
        "ca_file": Key(str, _EXACT, "tools trust these authorities, with the file's content"),
        "resolve": Key(dict, _EXACT, "names lead tools to these addresses", default={}),
        "max_connections": Key(
            int, _CEILING, "bounds what leaves the host", default=10_000, least=1, most=1_000_000
        ),
        "max_at_once": Key(
            int, _CEILING, "bounds what leaves the host", default=2_000, least=1, most=30_000
        ),
        "max_mb": Key(
            int, _CEILING, "bounds what leaves the host", default=8_192, least=1, most=1_048_576
        ),
    },
    "mcp": {
        "websocket": Key(bool, _CEILING, "MCP servers are reached over WebSocket", default=False),
    },
    # Concurrency: each execution has its own limits, whatever is set here.
    "limits": {
        "max_concurrent": Key(int, _FREE, "spreads the load of this host", least=1, most=1_000),
        "max_queued": Key(int, _FREE, "spreads the load of this host", default=4_000, most=100_000),
        "max_wait_s": Key(int, _FREE, "spreads the load of this host", default=600, most=86_400),
        "max_sessions": Key(int, _FREE, "spreads the load of this host", default=32, most=1_000),
    },
    "work": {
        "exclusive": Key(bool, _CEILING, "work items ignore other changes", default=False),
        "engine": Key(str, _EXACT, "keeps the changes of work items apart", default="auto"),
        "ignore": Key(list, _EXACT, "overwrites what other work items have written", default=[]),
    },
    "workspace": {
        "changes": Key(
            str, _EXACT, "`direct` lets tools write to the project itself", default="transaction"
        ),
        "on_stop": Key(str, _EXACT, "commits what an ended tool has written", default="discard"),
        "last_wins": Key(
            list, _EXACT, "overwrites what other programs have written", default=list(LAST_WINS)
        ),
        "keep": Key(int, _FREE, "bounds what can be undone", default=100, most=100_000),
        "keep_mb": Key(int, _FREE, "bounds what can be undone", default=1_000, most=1_000_000),
        "engine": Key(str, _EXACT, "keeps what tools write from the host", default="auto"),
        "copy_max_mb": Key(
            int, _CEILING, "bounds what is copied on this host", default=2_048, most=1_048_576
        ),
        "copy_max_files": Key(
            int, _CEILING, "bounds what is copied on this host", default=200_000, most=10_000_000
        ),
    },
    "protect": {
        "names": Key(list, _EXACT, "holds back what others execute", default=list(PROTECTED_NAMES)),
    },
    "runs": {
        "store": Key(str, _EXACT, "durable runs are taken from this database", default="embedded"),
        "password": Key(str, _EXACT, "this secret is sent to that database"),
        "dead_after_s": Key(
            int, _FREE, "bounds how long a dead worker keeps a run", default=30, least=5, most=3_600
        ),
    },
    "secrets": {},  # the project chooses the names: `SECRET` for each
    "approvers": {},  # likewise: `APPROVER`
}
APPROVER = Key(dict, _EXACT, "decides about tools, access or settings")
SECRET = Key(dict, _EXACT, "tools are given this value; a command runs on this host")


_ENGINES = ("/", "unix:///")


#: Sections whose keys are names that the project chooses.
_NAMED = {"secrets": SECRET, approvers.SECTION: APPROVER}


@value
class SettingsFile:
    """`actum.toml`, read once and well-formed."""

    root: Path
    content: bytes = field(repr=False)
    values: Mapping[str, Mapping[str, Any]]
    #: Key -> value of every setting that needs an approval and is not the default.
    approvable: Mapping[str, Json]
    #: The content of `egress.ca_file`: tools receive exactly what was approved.
    authorities: str | None = field(default=None, repr=False)

    def get(self, section: str, name: str) -> Any:
        """The value of a key, or its default."""
        return self.values.get(section, {}).get(name, KEYS[section][name].default)

    @property
    def watched(self) -> tuple[str, ...]:
        """The files that `approvable` depends on."""
        ca_file = self.get("egress", "ca_file")
        file = str(self.root / FILE_NAME)
        return (file,) if ca_file is None else (file, str(self.root / ca_file))


def key_of(setting: str) -> Key | None:
    """The declaration of `section.name`."""
    section, _, name = setting.partition(".")
    if section in _NAMED:
        return _NAMED[section]
    return KEYS.get(section, {}).get(name)


def read_settings(root: Path) -> SettingsFile:
    """The settings of the project at `root`; raises `ContractInvalid` with every problem."""
    file = root / FILE_NAME
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        raise no_project(f"{file} does not exist.") from error
    try:
        values = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ContractInvalid((Problem(field="", message=str(error), file=str(file)),)) from error
    problems = tuple(_problems(values, str(file)))
    if problems:
        raise ContractInvalid(problems)
    authorities = _authorities(root, values.get("egress", {}).get("ca_file"))
    approvable = dict(_approvable(values))
    if "egress.ca_file" in approvable:
        digest = None if authorities is None else sha256_bytes(authorities.encode())
        approvable["egress.ca_file"] = {"path": values["egress"]["ca_file"], "sha256": digest}
    return SettingsFile(
        root=root, content=content, values=values, approvable=approvable, authorities=authorities
    )


def no_project(message: str) -> Refused:
    return Refused(
        "NO_PROJECT",
        message,
        remedy="Run `actum init --runner local` here, give --home, or use `actum try`, which needs"
        " no project.",
    )


def _approvable(values: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    for section, entries in sorted(values.items()):
        for name, given in sorted(entries.items()):
            setting = f"{section}.{name}"
            key = key_of(setting)
            if key is not None and key.approval is not Approval.FREE and given != key.default:
                yield setting, given


def _authorities(root: Path, path: str | None) -> str | None:
    """The file's content; ``None`` if it cannot be read as a text of certificates."""
    if path is None:
        return None
    try:
        # A tool may be able to write the file: opening a pipe in its place would block.
        descriptor = os.open(root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            content = file.read(_CA_FILE_BYTES + 1)
        return content.decode() if len(content) <= _CA_FILE_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None


def _problems(values: Mapping[str, Any], file: str) -> list[Problem]:
    found: list[Problem] = []

    def report(setting: str, message: str, permitted: str) -> None:
        found.append(Problem(field=setting, message=message, permitted=permitted, file=file))

    for section, entries in values.items():
        known = KEYS.get(section)
        if known is None:
            report(section, "is not a section of actum.toml", ", ".join(KEYS))
        elif not isinstance(entries, dict):
            report(section, "must be a table", f"[{section}]")
        elif section == "secrets":
            for name, given in entries.items():
                if problem := problem_with(name, given):
                    report(f"secrets.{name}", problem, '{ env = "NAME" }')
        elif section == approvers.SECTION:
            persons: set[str] = set()
            for name, given in entries.items():
                problem = approvers.problem_with(name, given)
                if not problem and approvers.person(name) in persons:
                    problem = "another entry is the same name in other letters"
                persons.add(approvers.person(name))
                if problem:
                    report(f"{section}.{name}", problem, approvers.PERMITTED)
        else:
            for name, given in entries.items():
                setting, key = f"{section}.{name}", known.get(name)
                if key is None:
                    report(setting, "is not a setting", ", ".join(known))
                elif permitted := _permitted(setting, key, given):
                    report(setting, f"is {given!r}", permitted)
                elif setting == "docker.host" and not given.startswith(_ENGINES):
                    # A remote engine can take neither descriptors nor files of this host.
                    report(setting, f"is {given!r}", "the unix socket of an engine on this host")
                elif setting == "runs.store":
                    if problem := run_store.problem_with(given):
                        report(setting, problem, run_store.PERMITTED)
                elif setting == "egress.resolve":
                    for host, address in given.items():
                        if not _is_mapping(host, address):
                            wrong = f"{host!r} = {address!r} cannot be read"
                            report(setting, wrong, '"host:port" = "address:port"')
                elif setting == "interpreters.prefixes":
                    for prefix in given:
                        if not prefix.startswith("/") or os.path.normpath(prefix) != prefix:
                            wrong = f"{prefix!r} is not an absolute path in its shortest form"
                            report(setting, wrong, "absolute paths without `.`, `..` and final `/`")
                elif setting in ("workspace.last_wins", "work.ignore"):
                    for pattern in given:
                        if problem := path_patterns.problem_with(pattern):
                            report(setting, f"{pattern!r} {problem}", path_patterns.PERMITTED)
    return found


def _permitted(setting: str, key: Key, given: Any) -> str:
    """The permitted values; empty if the value is permitted."""
    match key.kind:
        case kind if kind is bool:
            fits, permitted = isinstance(given, bool), "true or false"
        case kind if kind is int:
            # True is an int in Python
            fits = type(given) is int and key.least <= given <= key.most
            permitted = f"integer {key.least}..{key.most}"
        case kind if kind is list:
            fits = isinstance(given, list) and all(isinstance(item, str) for item in given)
            permitted = "a list of strings"
        case kind if kind is dict:
            fits = isinstance(given, dict) and all(isinstance(v, str) for v in given.values())
            permitted = "a table of strings"
        case _:
            fits, permitted = isinstance(given, str), "a string"
            if fits and setting in _CHOICES:
                fits, permitted = given in _CHOICES[setting], ", ".join(_CHOICES[setting])
    return "" if fits else permitted


def _is_mapping(name: str, address: str) -> bool:
    host, port = split_port(name)
    try:
        split_address(address)
    except ValueError:
        return False
    return bool(host) and port.isdecimal() and 0 < int(port) < 65_536
