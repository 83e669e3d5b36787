"""`actum.toml` and the environment, read once into frozen `Settings`. Only wiring and doors see it.

The keys, their defaults and which of them need an approval: `settings_file`.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path

from actum.contract.model import RunnerKind
from actum.contract.package_registries import Registries
from actum.errors import Refused
from actum.secrets.sources import Source, source_of
from actum.settings_file import FILE_NAME, SettingsFile, no_project, read_settings
from actum.value import field, value

HOME_NAME = ".actum"


@value
class Settings:
    """One project: where it is, what it enables, which keys it trusts."""

    root: Path  #: the directory of actum.toml, the repo root of contracts
    home: Path  #: .actum/, never visible to a tool
    runners: frozenset[RunnerKind]
    docker_host: str | None  #: the engine's socket; ``None``: the usual one of this host
    docker_runtime: str | None
    trusted_keys: tuple[str, ...]  #: public keys (PEM) whose pins count here, beside our own
    dependencies: tuple[str, ...]  #: folders that filesystem level `extended` may read
    interpreters: tuple[str, ...]  #: folders outside the system's whose programs tools may execute
    #: hosts of network level `registry`; ``None``: those of this host's package clients
    listed_registries: tuple[str, ...] | None
    clients: Mapping[str, str] = field(repr=False)  #: variables that set package clients up
    apis: tuple[str, ...]  #: hosts of network level `api`
    resolve: Mapping[str, str]  #: "host:port" -> "address:port", for private names
    mcp_websocket: bool  #: whether MCP servers may be reached by a non-standard transport
    ca_file: str | None  #: certificate authorities that tools trust beside the system's
    login: str
    max_concurrent: int  #: sandboxes of one `Runtime` that run at once
    max_queued: int  #: requests that may wait for one; more are refused
    max_wait_s: float  #: and for how long
    max_sessions: int  #: sandboxes that stay open between calls
    egress_connections: int  #: of one execution, total
    egress_at_once: int  #: of one execution
    egress_mb: int  #: of one execution, both directions together
    work_exclusive: bool  #: only work items change the project's files
    work_ignore: tuple[str, ...]  #: patterns of paths on which the last work item wins
    work_engine: str  #: how their changes are isolated: auto, overlay or copy
    transactions: bool  #: whether an execution's changes are committed when its tool has ended
    commit_when_stopped: bool  #: also those of a tool that Actum ended
    last_wins: tuple[str, ...]  #: patterns of paths on which the last writer wins
    keep_changes: int  #: finished transactions that can still be shown and undone
    keep_changes_mb: int  #: and the most content of theirs
    workspace_engine: str  #: how an execution's changes are isolated: auto, overlay or copy
    copy_max_mb: int  #: a folder that supports no overlay is copied up to this size
    copy_max_files: int  #: and up to this many names
    protected_names: tuple[str, ...]  #: held back at a commit, beside governing and git names
    runs_store: str  #: the ledger of durable runs: embedded, or the address of a database
    runs_password: str | None  #: the secret with its password, if libpq finds none by itself
    runs_dead_after_s: int  #: a worker of another machine without a beat for so long is dead
    secrets: Mapping[str, Source]  #: the source of each; settings never hold a value
    file: SettingsFile = field(repr=False)  #: the file that all of it was read from

    def registries(self, writable: Iterable[str]) -> Registries:
        """What network level `registry` means here. `writable` are the paths that tools may write;
        a file in one of them, or in the project, sets nothing up."""
        from actum.package_clients import limited, registries_of_host  # for that level alone

        found = registries_of_host(self.clients, (str(self.root), *writable))
        if self.listed_registries is None:
            return found
        return limited(found, self.listed_registries)


def discover(start: Path, home: Path | None = None) -> Path:
    """The project's `.actum`: the given one, else the nearest upwards. It must be the caller's."""
    if home is not None:
        found = home if home.name == HOME_NAME else home / HOME_NAME
        if not found.is_dir():
            raise no_project(f"{found} does not exist.")
    else:
        candidates = (folder / HOME_NAME for folder in (start, *start.parents))
        nearest = next((folder for folder in candidates if folder.is_dir()), None)
        if nearest is None:
            raise _no_home(start)
        found = nearest
        _require_outermost(found)
    owner = found.stat(follow_symlinks=False).st_uid
    # A planted .actum/ above a shared directory would decide what runs and hold the keys.
    if owner != os.geteuid():
        raise Refused(
            "HOME_NOT_OURS",
            f"{found} belongs to uid {owner}, not to the caller (uid {os.geteuid()}).",
            remedy="Use your own project, or give its path with --home.",
        )
    return found.resolve()


def _no_home(start: Path) -> Refused:
    cloned = next((each for each in (start, *start.parents) if (each / FILE_NAME).is_file()), None)
    if cloned is None:
        return no_project(f"There is no {HOME_NAME}/ in {start} or above it.")
    return Refused(
        "NO_PROJECT",
        f"{cloned} has an {FILE_NAME} and no {HOME_NAME}/, as a clone has.",
        remedy=f"Run `actum init {cloned}`: it makes {HOME_NAME}/ with keys of your own, leaves"
        " what is there as it is, and says which key to trust.",
    )


def _require_outermost(found: Path) -> None:
    """Refuse a home inside another project: a tool may write in the project, so it can plant a
    home with its own keys and approvals, and that home must not govern later work there."""
    for folder in found.parent.parents:
        outer = folder / HOME_NAME
        # Only the caller's own: another user may plant one above a shared directory.
        if (
            outer.is_dir()
            and (folder / FILE_NAME).is_file()
            and outer.stat(follow_symlinks=False).st_uid == os.geteuid()
        ):
            raise Refused(
                "HOME_NESTED",
                f"{found} is inside another project ({folder}), whose tools could have made it.",
                remedy=f"If it is yours, give --home {found}; if not, remove it.",
            )


def load(home: Path, environment: Mapping[str, str]) -> Settings:
    """Read the project's settings. The environment only names the requester."""
    root = home.parent
    file = read_settings(root)
    limit = file.get("limits", "max_concurrent")
    listed = file.get("network", "registries")
    return Settings(
        root=root,
        home=home,
        runners=frozenset(kind for kind in RunnerKind if file.get("runners", kind.value)),
        docker_host=file.get("docker", "host"),
        docker_runtime=file.get("docker", "runtime"),
        trusted_keys=tuple(file.get("trust", "keys")),
        dependencies=tuple(
            str((root / path).resolve()) for path in file.get("filesystem", "dependencies")
        ),
        interpreters=tuple(file.get("interpreters", "prefixes")),
        listed_registries=None if listed is None else tuple(listed),
        clients=_client_environment(environment),
        apis=tuple(file.get("network", "apis")),
        resolve={name.lower(): address for name, address in file.get("egress", "resolve").items()},
        mcp_websocket=file.get("mcp", "websocket"),
        ca_file=_path(root, file.get("egress", "ca_file")),
        login=login_of(environment),
        max_concurrent=2 * (os.cpu_count() or 1) if limit is None else limit,
        max_queued=file.get("limits", "max_queued"),
        max_wait_s=file.get("limits", "max_wait_s"),
        max_sessions=file.get("limits", "max_sessions"),
        egress_connections=file.get("egress", "max_connections"),
        egress_at_once=file.get("egress", "max_at_once"),
        egress_mb=file.get("egress", "max_mb"),
        work_exclusive=file.get("work", "exclusive"),
        work_ignore=tuple(file.get("work", "ignore")),
        work_engine=file.get("work", "engine"),
        transactions=file.get("workspace", "changes") == "transaction",
        commit_when_stopped=file.get("workspace", "on_stop") == "commit",
        last_wins=tuple(file.get("workspace", "last_wins")),
        keep_changes=file.get("workspace", "keep"),
        keep_changes_mb=file.get("workspace", "keep_mb"),
        workspace_engine=file.get("workspace", "engine"),
        copy_max_mb=file.get("workspace", "copy_max_mb"),
        copy_max_files=file.get("workspace", "copy_max_files"),
        protected_names=tuple(file.get("protect", "names")),
        runs_store=file.get("runs", "store"),
        runs_password=file.get("runs", "password"),
        runs_dead_after_s=file.get("runs", "dead_after_s"),
        secrets={
            name: source_of(value, project=str(root), user_home=environment.get("HOME", "/root"))
            for name, value in file.values.get("secrets", {}).items()
        },
        file=file,
    )


#: The variables by which pip and npm are set up, by the beginning of their names.
_CLIENT_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "PIP_", "NPM_CONFIG_")


def _client_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text
        for name, text in environment.items()
        if name.upper().startswith(_CLIENT_VARIABLES)
    }


def login_of(environment: Mapping[str, str]) -> str:
    """The requester's login name; the uid for a user without an entry."""
    if name := environment.get("LOGNAME"):
        return name
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid-{os.geteuid()}"


def _path(root: Path, value: str | None) -> str | None:
    return None if value is None else str((root / value).resolve())
