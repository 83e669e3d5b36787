"""Parses a git configuration: its entries, and the paths that their values name.

Git itself is never run: it would read, and obey, the configuration under examination. The syntax
is that of git-config(1). A text that this parser refuses, git refuses too; if the two ever
differ, the text counts as one that cannot be analysed.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator

from actum.value import value

#: A section, a subsection and a key; ``*`` matches any subsection, and none.
_Name = tuple[str, str, str]


class NotGitConfig(Exception):
    """The text is not a git configuration; names the line."""


@value(kw_only=False)
class Setting:
    """One entry of a configuration file."""

    section: str  #: lower case
    subsection: str  #: as written; empty if there is none
    key: str  #: lower case
    value: str  #: ``true`` for a key without a value

    def is_one_of(self, names: frozenset[_Name]) -> bool:
        exact = (self.section, self.subsection, self.key)
        return exact in names or (self.section, "*", self.key) in names


#: Values that are one path.
_FILES = frozenset({("core", "", "attributesfile")})
_FOLDERS = frozenset({("core", "", "hookspath"), ("init", "", "templatedir")})
_INCLUDES = frozenset({("include", "", "path"), ("includeif", "*", "path")})

#: Values that git executes, or passes to a shell.
_COMMANDS = frozenset(
    {
        *(("core", "", key) for key in ("fsmonitor", "sshcommand", "editor", "pager", "askpass")),
        *(("core", "", key) for key in ("gitproxy", "alternaterefscommand")),
        ("sequence", "", "editor"),
        ("diff", "", "external"),
        ("interactive", "", "difffilter"),
        ("uploadpack", "", "packobjectshook"),
        ("gc", "", "recentobjectshook"),
        ("web", "", "browser"),
        *(("filter", "*", key) for key in ("clean", "smudge", "process")),
        *(("diff", "*", key) for key in ("command", "textconv")),
        ("merge", "*", "driver"),
        *((tool, "*", key) for tool in ("mergetool", "difftool") for key in ("cmd", "path")),
        *((shows, "*", key) for shows in ("browser", "man") for key in ("cmd", "path")),
        *(("gpg", "*", key) for key in ("program", "defaultkeycommand")),
        ("credential", "*", "helper"),
        *(("trailer", "*", key) for key in ("command", "cmd")),
        *(("remote", "*", key) for key in ("uploadpack", "receivepack", "vcs")),
        *(("sendemail", "*", f"{key}cmd") for key in ("to", "cc", "header", "sendmail")),
        ("sendemail", "*", "smtpserver"),
        ("hook", "*", "command"),
        ("tar", "*", "command"),
        ("guitool", "*", "cmd"),
        ("imap", "", "tunnel"),
    }
)
#: Sections and keys whose paths are not executed. An entry in none of these lists belongs to an
#: unknown program: paths in its value count.
_HARMLESS_SECTIONS = frozenset(
    {
        *("branch", "user", "author", "committer", "color", "column", "safe", "url", "push"),
        *("pull", "fetch", "http", "maintenance", "scalar", "gui", "log", "advice", "i18n"),
        *("core", "extensions", "remote", "submodule", "include", "includeif", "status"),
        *("commit", "diff", "merge", "filter", "credential", "gpg", "format", "grep"),
    }
)


def parse(text: str) -> tuple[Setting, ...]:
    """Every entry, in order. Raises `NotGitConfig`."""
    return tuple(_Reader(text.removeprefix("\ufeff")).settings())


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0

    def settings(self) -> Iterator[Setting]:
        section = subsection = ""
        while char := self._next():
            if char.isspace():
                continue
            if char in "#;":
                self._skip_line()
            elif char == "[":
                section, subsection = self._header()
            elif _is_letter(char):
                key = char + self._take(_KEY)
                yield Setting(section, subsection, key.lower(), self._value())
            else:
                raise self._wrong()

    def _next(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        return char

    def _take(self, fits: re.Pattern[str]) -> str:
        found = fits.match(self._text, self._at)
        taken = found.group() if found else ""
        self._at += len(taken)
        return taken

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _wrong(self) -> NotGitConfig:
        line = self._text.count("\n", 0, self._at - 1) + 1
        return NotGitConfig(f"line {line} is not an entry of a git configuration")

    def _header(self) -> tuple[str, str]:
        name = self._take(_SECTION)
        if not name:
            raise self._wrong()
        blank = self._take(_BLANK)
        char = self._next()
        if char == "]" and not blank:
            section, _, subsection = name.lower().partition(".")
            return section, subsection
        if char != '"' or not blank:
            raise self._wrong()
        subsection = ""
        while (char := self._next()) != '"':
            if char == "\\":
                char = self._next()
            if char in ("", "\n"):
                raise self._wrong()
            subsection += char
        if self._next() != "]":
            raise self._wrong()
        return name.lower(), subsection

    def _value(self) -> str:
        self._take(_BLANK)
        char = self._next()
        if char in ("", "\n"):
            return "true"
        if char != "=":
            raise self._wrong()
        self._take(_BLANK)
        value, kept, quoted = "", 0, False  # `kept`: length without trailing blanks
        while (char := self._next()) not in ("", "\n"):
            if char == "\\":
                char = self._next()
                if char == "\n":
                    continue
                if char not in _ESCAPES:
                    raise self._wrong()
                value += _ESCAPES[char]
                kept = len(value)
            elif char == '"':
                quoted = not quoted
            elif char in "#;" and not quoted:
                self._skip_line()
            else:
                value += char
                if quoted or not char.isspace():
                    kept = len(value)
        if quoted:
            raise self._wrong()
        return value[:kept]


def _is_letter(char: str) -> bool:
    return char.isascii() and char.isalpha()


_KEY = re.compile(r"[A-Za-z0-9-]*")
_SECTION = re.compile(r"[A-Za-z0-9.-]+")
_BLANK = re.compile(r"[ \t]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}


# -- paths in a value -----------------------------------------------------------------------------


@value
class Named:
    """Paths in a value, as written."""

    whole: tuple[str, ...] = ()  #: each with all contents
    files: tuple[str, ...] = ()  #: a word that may be the name of a file
    #: The text after a part that only a shell can expand: a path that holds it may be meant.
    ends: tuple[str, ...] = ()
    #: Folders that a command changes to first.
    folders: tuple[str, ...] = ()


def includes(setting: Setting) -> bool:
    """Whether the value is another configuration file, under any condition."""
    return setting.is_one_of(_INCLUDES)


def is_hooks_folder(setting: Setting) -> bool:
    return setting.is_one_of(_FOLDERS)


def named_by(setting: Setting) -> Named:
    """The paths that git executes, or reads as configuration, because of this entry.

    Files that a named program reads or starts in turn are not followed.
    """
    if setting.is_one_of(_FILES | _FOLDERS | _INCLUDES):
        return Named(whole=(setting.value,))
    # By convention of git, a value with an exclamation mark is a command, such as an alias.
    if setting.is_one_of(_COMMANDS) or setting.value.startswith(("!", "ext::")):
        return _named_in(setting.value)
    if setting.section in _HARMLESS_SECTIONS:
        return Named()
    found = _named_in(setting.value)
    return Named(whole=found.whole, ends=found.ends, folders=found.folders)


#: Text that only a shell can expand: variables, command substitutions, braces and patterns.
_EXPANDED = re.compile(r"\$\{[^}]*\}|\$[A-Za-z_]\w*|\$[@*#?$!0-9-]|\{[^}\s]*\}|[)`*?]|\[[^\]\s]*\]")
_HOME = re.compile(r"\$\{HOME\}|\$HOME\b")
_BETWEEN = re.compile(r"[\s;|&<>=,:(!]+")
_CHANGES_FOLDER = re.compile(r"\bcd\s+[\"']?([^\s\"';&|]+)")
_UNKNOWN = "\0"
_LETTERS = re.compile(r"\w")


def _named_in(command: str) -> Named:
    command = _HOME.sub("~", command).replace("$(", " ").replace(_UNKNOWN, "")
    marked = _EXPANDED.sub(_UNKNOWN, command)
    # A quote may be in a word, around one, or around a whole command: each reading counts.
    readings = [marked.replace('"', "").replace("'", ""), re.sub("[\"']", " ", marked)]
    words = {word for reading in readings for word in _BETWEEN.split(reading)}
    words.add(marked.lstrip("!").strip())  # some are executed without a shell
    with contextlib.suppress(ValueError):  # not a complete shell command
        words.update(shlex.split(marked))
    whole: set[str] = set()
    files: set[str] = set()
    ends: set[str] = set()
    for word in words:
        if not _LETTERS.search(word) or word.startswith("-"):
            continue
        if _UNKNOWN in word:
            first, last = word.split(_UNKNOWN)[0], word.split(_UNKNOWN)[-1].rstrip("/")
            if folder := first.rpartition("/")[0].strip("/"):
                whole.add(folder if not first.startswith("/") else f"/{folder}")
            if len(last) > 1 and _LETTERS.search(last):
                ends.add(last)
        elif "/" in word:
            whole.add(word)
        else:
            files.add(word)
    folders = {found for found in _CHANGES_FOLDER.findall(marked) if _UNKNOWN not in found}
    return Named(
        whole=tuple(sorted(whole)),
        files=tuple(sorted(files)),
        ends=tuple(sorted(ends)),
        folders=tuple(sorted(folders)),
    )
