"""The registries that this host's package clients are set up for: pip, npm and apt.

Reads what the clients read: the files of the system and of the user, the variables of the caller,
and the default that the installed client itself contains. No name of a registry is known here, and
no program is started. A file that a tool, or another user, could have written is not obeyed: it is
named in `Registries.ignored`. A project's own `.npmrc` or `pip.conf` is never read: tools write
there.

Proved by tests/unit/test_package_clients.py and tests/integration/test_package_tools.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from glob import glob
from urllib.parse import urlsplit, urlunsplit

from actum.contract.levels import host_covers
from actum.contract.package_registries import Registries
from actum.secrets.host_program import UnsafeCommand, trusted_text
from actum.secrets.sources import Unavailable

#: The order in which the clients look; the first program found is the one that tools run.
_PROGRAM_FOLDERS = ("usr/local/bin", "usr/bin", "bin")
_APT_LINE = re.compile(r"^deb(?:-src)?\s+(?:\[[^\]]*\]\s+)?(\S+)", re.MULTILINE)
_DEB822_LINE = re.compile(r"^URIs:\s*(.*(?:\n[ \t]+.+)*)", re.MULTILINE | re.IGNORECASE)
#: pip's own index, in `pip/_internal/models/index.py`: its URL and where its files are.
_PIP_DEFAULT = re.compile(
    r"^PyPI\s*=\s*PackageIndex\(\s*[\"']([^\"']+)[\"']\s*,\s*file_storage_domain=[\"']([^\"']+)",
    re.MULTILINE,
)
#: npm's own registry, in the file that defines its options (npm 7 and later, and npm 6).
_NPM_DEFAULT = re.compile(
    r"Definition\('registry', \{\s*default:\s*['\"`]([^'\"`]+)"
    r"|define\('registry', \{\s*default:\s*['\"`]([^'\"`]+)"
    r"|^\s*registry: ['\"]([^'\"]+)['\"],$",
    re.MULTILINE,
)
_NPM_DEFINITIONS = (
    "node_modules/@npmcli/config/lib/definitions/definitions.js",
    "../@npmcli/config/lib/definitions/definitions.js",
    "lib/utils/config/definitions.js",
    "lib/config/defaults.js",
)
_VARIABLE = re.compile(r"\$\{([^}]+)\}")
_TRUE = ("1", "true", "yes", "on")


def registries_of_host(
    environment: Mapping[str, str], writable: Iterable[str], root: str = "/"
) -> Registries:
    """Ask the host and the caller. `writable` are the paths that tools may write; `root` is where
    the system's files are."""
    files = _Files(root, environment.get("HOME", "/nonexistent"), tuple(writable))
    pip, npm = _pip(files, environment), _npm(files, environment)
    hosts = {*pip.hosts, *npm.hosts, *_hosts(_apt(files))}
    return Registries(
        hosts=tuple(sorted(hosts)),
        environment={**pip.environment, **npm.environment},
        ignored=tuple(files.ignored),
    )


def limited(found: Registries, hosts: tuple[str, ...]) -> Registries:
    """`hosts` in place of those found, and the variables that lead to them."""
    environment = {
        name: text
        for name, text in found.environment.items()
        if all(any(host_covers(host, url) for host in hosts) for url in _hosts(text.split()))
    }
    return Registries(hosts=hosts, environment=environment, ignored=found.ignored)


class _Files:
    """The system's and the user's files, read only if nobody else could have written them."""

    def __init__(self, root: str, home: str, writable: tuple[str, ...]) -> None:
        self.home = home
        self.ignored: list[str] = []
        self._root = root.rstrip("/")
        self._writable = writable

    def of_host(self, path: str) -> str:
        return f"{self._root}/{path}"

    def text(self, path: str) -> str:
        """The content of a file; empty for one that is missing or not obeyed."""
        if not os.path.lexists(path):
            return ""
        try:
            return trusted_text(path, self._writable)
        except UnsafeCommand as why:
            self.ignored.append(str(why))
        except Unavailable:
            pass  # not configured here, or not readable
        return ""

    def program(self, name: str) -> str:
        """The real path of a program of the system; empty if it is not installed."""
        for folder in _PROGRAM_FOLDERS:
            path = self.of_host(f"{folder}/{name}")
            if os.path.isfile(path):
                return os.path.realpath(path)
        return ""


# -- pip ------------------------------------------------------------------------------------------


def _pip(files: _Files, environment: Mapping[str, str]) -> Registries:
    python = files.program("python3")
    options = _pip_options(files, environment, python)
    if options.get("no-index", "").lower() in _TRUE:
        return Registries()
    given = {name: _urls(options.get(name, "")) for name in ("index-url", "extra-index-url")}
    default, storage = _pip_default(files, python)
    found = [url for urls in given.values() for url in urls]
    if "index-url" not in options and default:
        found.append(default)
    hosts = _hosts(found)
    # The default index names files on another host.
    if storage and not hosts.isdisjoint(_hosts([default])):
        hosts.add(storage)
    passed = {_pip_variable(name): " ".join(map(_public, urls)) for name, urls in given.items()}
    # Without it, pip ignores an index that is reached over plain HTTP.
    passed[_pip_variable("trusted-host")] = " ".join(options.get("trusted-host", "").split())
    return Registries(
        hosts=tuple(hosts), environment={name: text for name, text in passed.items() if text}
    )


def _pip_variable(option: str) -> str:
    return f"PIP_{option.upper().replace('-', '_')}"


def _pip_options(files: _Files, environment: Mapping[str, str], python: str) -> dict[str, str]:
    """As pip reads them: system, user, interpreter, PIP_CONFIG_FILE, then variables; of a file,
    `[install]` after `[global]`."""
    named = environment.get("PIP_CONFIG_FILE", "")
    options: dict[str, str] = {}
    if named != os.devnull:
        user = environment.get("XDG_CONFIG_HOME") or f"{files.home}/.config"
        prefix = os.path.dirname(os.path.dirname(python)) if python else ""
        for path in (
            files.of_host("etc/xdg/pip/pip.conf"),
            files.of_host("etc/pip.conf"),
            f"{files.home}/.pip/pip.conf",
            f"{user}/pip/pip.conf",
            f"{prefix}/pip.conf" if prefix else "",
            named,
        ):
            if path.startswith("/"):
                options |= _ini(files.text(path), ("global", "install"))
    for name in ("index-url", "extra-index-url", "trusted-host", "no-index"):
        if text := environment.get(_pip_variable(name)):
            options[name] = text
    return options


def _ini(text: str, sections: Iterable[str]) -> dict[str, str]:
    if not text:
        return {}
    import configparser  # only where there is such a file

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}  # pip itself refuses such a file
    return {
        name.lower().replace("_", "-"): content
        for section in sections
        if parser.has_section(section)
        for name, content in parser.items(section)
    }


def _pip_default(files: _Files, python: str) -> tuple[str, str]:
    """The index and the host of its files, as the installed pip has them."""
    prefix = os.path.dirname(os.path.dirname(python)) if python else ""
    if not prefix:
        return "", ""
    version = os.path.basename(python)
    for pattern in (
        f"{prefix}/local/lib/{version}/dist-packages",
        f"{prefix}/lib/{version}/site-packages",
        f"{prefix}/lib/{version}/dist-packages",
        f"{prefix}/lib/python3/dist-packages",
        f"{prefix}/lib/python3*/site-packages",
    ):
        for folder in sorted(glob(pattern)):
            match = _PIP_DEFAULT.search(files.text(f"{folder}/pip/_internal/models/index.py"))
            if match is not None:
                return match[1], match[2]
    return "", ""


# -- npm ------------------------------------------------------------------------------------------


def _npm(files: _Files, environment: Mapping[str, str]) -> Registries:
    given = {name.lower(): text for name, text in environment.items() if text}
    installed = files.program("npm")
    package = os.path.dirname(os.path.dirname(installed)) if installed else ""
    options: dict[str, str] = {}
    for path in (
        f"{package}/npmrc" if package else "",
        files.of_host("etc/npmrc"),
        given.get("npm_config_globalconfig") or files.of_host("usr/etc/npmrc"),
        given.get("npm_config_userconfig") or f"{files.home}/.npmrc",
    ):
        if path.startswith("/"):
            options |= _npmrc(files.text(path), environment)
    if "npm_config_registry" in given:
        options["registry"] = given["npm_config_registry"]
    own = _urls(options.get("registry", ""))
    scoped = [url for name, text in options.items() if name != "registry" for url in _urls(text)]
    default = "" if "registry" in options else _npm_default(files, package)
    return Registries(
        hosts=tuple(_hosts([*own, *scoped, default])),
        environment={"npm_config_registry": _public(own[0])} if own else {},
    )


def _npmrc(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """`registry` and the registries of scopes."""
    found = {}
    for line in text.splitlines():
        name, equals, content = line.strip().partition("=")
        name = name.strip()
        if equals and (name == "registry" or (name[:1] == "@" and name.endswith(":registry"))):
            content = content.strip().strip("\"'")
            found[name] = _VARIABLE.sub(lambda match: environment.get(match[1], ""), content)
    return found


def _npm_default(files: _Files, package: str) -> str:
    for name in _NPM_DEFINITIONS if package else ():
        path = os.path.normpath(f"{package}/{name}")
        match = _NPM_DEFAULT.search(files.text(path)) if os.path.isfile(path) else None
        if match is not None:
            return match[1] or match[2] or match[3]
    return ""


# -- apt ------------------------------------------------------------------------------------------


def _apt(files: _Files) -> Iterator[str]:
    listed = files.of_host("etc/apt/sources.list")
    found: tuple[tuple[str, Callable[[str], list[str]]], ...] = (
        (listed, _APT_LINE.findall),
        *((path, _APT_LINE.findall) for path in sorted(glob(f"{listed}.d/*.list"))),
        *((path, _DEB822_LINE.findall) for path in sorted(glob(f"{listed}.d/*.sources"))),
    )
    for path, urls_in in found:
        for text in urls_in(files.text(path)):
            yield from text.split()


# -- URLs -----------------------------------------------------------------------------------------


def _urls(text: str) -> list[str]:
    """The URLs of an option that lead to a host; a local folder does not."""
    # Without quotes, which hide the name and password in it from `_public`.
    return [url for each in text.split() if _host(url := each.strip("\"'"))]


def _hosts(urls: Iterable[str]) -> set[str]:
    return {host for url in urls if (host := _host(url))}


def _host(url: str) -> str:
    """`host`, or `host:port` where the URL names a port; empty for a local folder."""
    try:
        parts = urlsplit(url.strip("\"'"))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host:
        return ""
    if ":" in host:
        host = f"[{host}]"
    return f"{host}:{port}" if port else host


def _public(url: str) -> str:
    """The URL without the name and password in it: a tool is given no secret by this way."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
