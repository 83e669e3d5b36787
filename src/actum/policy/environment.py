"""The environment of a tool: built from scratch, never inherited (IV-04).

Three parts: the variables that Actum sets for every call (`baseline`), those that the tool's
approval lets a caller set (`approved_names`), and names that no approval can permit, because they
make a program load or run something else (`is_never_passed`).
"""

from __future__ import annotations

from collections.abc import Collection

from actum.contract.call import Call
from actum.contract.model import Determinism
from actum.registry.executable import MINIMAL_PATH
from actum.registry.model import Entry

#: 1980-01-01, the earliest time that every archive format can represent.
FIXED_EPOCH = "315532800"

#: Set by Actum: the search path, home, scratch and artifacts of a tool.
_OURS = frozenset({"PATH", "HOME", "TMPDIR"})

#: Read by loaders, shells, interpreters and version control as "run this as well".
_DANGEROUS = frozenset(
    {
        # C library
        "GCONV_PATH", "GETCONF_DIR", "GLIBC_TUNABLES", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH",
        "MALLOC_TRACE", "NIS_PATH", "NLSPATH", "RESOLV_HOST_CONF", "RES_OPTIONS",
        # shells
        "BASHOPTS", "BASH_ENV", "CDPATH", "ENV", "FPATH", "GLOBIGNORE", "IFS", "PROMPT_COMMAND",
        "PS4", "SHELLOPTS", "ZDOTDIR",
        # interpreters
        "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "LUA_INIT", "LUA_PATH",
        "NODE_OPTIONS", "NODE_PATH", "NODE_REPL_EXTERNAL_MODULE", "PERL5DB", "PERL5LIB",
        "PERL5OPT", "PERLLIB", "PHPRC", "PHP_INI_SCAN_DIR", "PYTHONBREAKPOINT", "PYTHONEXECUTABLE",
        "PYTHONHOME", "PYTHONINSPECT", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONSTARTUP",
        "PYTHONUSERBASE", "PYTHONWARNINGS", "RUBYLIB", "RUBYOPT", "_JAVA_OPTIONS",
        # programs that start helpers
        "BROWSER", "EDITOR", "GIT_ASKPASS", "GIT_EDITOR", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF",
        "GIT_PAGER", "GIT_PROXY_COMMAND", "GIT_SEQUENCE_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND",
        "GIT_TEMPLATE_DIR", "LESSCLOSE", "LESSOPEN", "MANPAGER", "PAGER", "SSH_ASKPASS",
        "SUDO_ASKPASS", "VISUAL",
    }
)  # fmt: skip
_DANGEROUS_PREFIXES = ("LD_", "DYLD_", "BASH_FUNC_", "GIT_CONFIG", "ACTUM_")


def is_never_passed(name: str) -> bool:
    """Whether `name` is stripped, whatever a tool approves."""
    return name in _OURS or name in _DANGEROUS or name.startswith(_DANGEROUS_PREFIXES)


def approved_names(entry: Entry) -> tuple[str, ...]:
    """Names a caller may set: the tool's own list and the targets of its adapter's parameters."""
    mapped = entry.adapter.cli.env_mapping.values() if entry.adapter.cli else ()
    return tuple(
        sorted(name for name in {*entry.tool.environment, *mapped} if not is_never_passed(name))
    )


def baseline(determinism: Determinism, path: tuple[str, ...]) -> dict[str, str]:
    """The variables of every call; `path` is the tool's scoped PATH, empty for the minimal one."""
    declared = {
        "PATH": ":".join(path or MINIMAL_PATH),
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "ACTUM_ARTIFACTS": "/artifacts",
    }
    if determinism is not Determinism.D0:
        declared["SOURCE_DATE_EPOCH"] = FIXED_EPOCH
    return declared


def tool_environment(
    call: Call,
    approved: Collection[str],
    *,
    determinism: Determinism,
    path: tuple[str, ...],
) -> dict[str, str]:
    """The tool's whole environment: the baseline, overridden by the caller's approved values."""
    given = {
        name: value
        for name, value in call.environment.items()
        if name in approved and not is_never_passed(name)
    }
    return baseline(determinism, path) | given
