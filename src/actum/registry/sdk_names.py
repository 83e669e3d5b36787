"""Checks the names in `interface.sdk` by the rules of their language when an adapter is loaded.

They become part of a compiled program or are looked up in a module: text that is not a name in
that language is a mistake, or an injection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from actum.documents.document import Document
from actum.documents.source_position import Path as KeyPath
from actum.errors import Problem

_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_DOTTED = (re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*"), "names joined by dots")
_DISTRIBUTION = (re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?"), "a package's name")
_NPM = (re.compile(r"(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*"), "an npm package's name")
_NODE_PATH = (re.compile(r"(\./)?[@A-Za-z0-9_][A-Za-z0-9._~@/-]*"), "a specifier without `..`")
_NODE_NAME = (re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*"), _DOTTED[1])
_GO_PATH = (re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*(/[A-Za-z0-9._~-]+)*"), "a Go import path")
_GO_NAME = (re.compile(r"[A-Z][A-Za-z0-9_]*"), "an exported Go function")
_RUST_CRATE = (re.compile(_IDENTIFIER), "the name of a crate")
_RUST_PATH = (re.compile(rf"{_IDENTIFIER}(::{_IDENTIFIER})*"), "a Rust path such as a::b")

#: language -> forms of package, import_path and function
_FORMS: Mapping[str, tuple[tuple[re.Pattern[str], str], ...]] = {
    "python": (_DISTRIBUTION, _DOTTED, _DOTTED),
    "node": (_NPM, _NODE_PATH, _NODE_NAME),
    "go": (_GO_PATH, _GO_PATH, _GO_NAME),
    "rust": (_RUST_CRATE, _RUST_PATH, _RUST_PATH),
}


def sdk_problems(document: Document) -> Iterator[Problem]:
    """Everything in the sdk block that is not a name in its language."""
    sdk, at = document.value["interface"]["sdk"], ("interface", "sdk")
    package, import_path, function = _FORMS[sdk["language"]]
    wrong = [
        *_judged(document, (*at, "package"), sdk["package"], package),
        *_judged(document, (*at, "import_path"), sdk["import_path"], import_path),
    ]
    yield from wrong or _outside(document, at, sdk)
    for operation, name in sdk["function_mapping"].items():
        yield from _judged(document, (*at, "function_mapping", operation), name, function)


#: Of the languages whose paths begin with the package. Drivers check the modules of the others,
#: which may have other names than their package.
_SEPARATORS = {"go": "/", "rust": "::"}


def _outside(document: Document, at: KeyPath, sdk: Mapping[str, str]) -> Iterator[Problem]:
    separator = _SEPARATORS.get(sdk["language"])
    package, path = sdk["package"], sdk["import_path"]
    if separator is not None and not f"{path}{separator}".startswith(f"{package}{separator}"):
        yield document.problem(
            (*at, "import_path"),
            "it is not in the package.",
            value=path,
            permitted=f"{package}, or {package}{separator}…",
        )


def _judged(
    document: Document, key_path: KeyPath, name: str, form: tuple[re.Pattern[str], str]
) -> Iterator[Problem]:
    if form[0].fullmatch(name) is None or ".." in name:
        yield document.problem(
            key_path, "not a name in this language.", value=name, permitted=form[1]
        )
