"""Calls a function with a module as soon as the module is loaded, before its importer goes on."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

_Then = Callable[[ModuleType], None]


class _Watch(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.wanted: dict[str, list[_Then]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        thens = self.wanted.pop(name, None)
        if thens is None:
            return None
        found = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                for then in thens:
                    then(module)

            spec.loader.exec_module = exec_module
        return spec


_WATCH = _Watch()


def after_import(name: str, then: _Then) -> None:
    if _WATCH not in sys.meta_path:
        sys.meta_path.insert(0, _WATCH)
    _WATCH.wanted.setdefault(name, []).append(then)


def wrap(module: str, path: str, around: Callable[[Callable], Callable]) -> None:
    """Replace the function `path` of a module by `around(function)` once the module is loaded."""

    def replace(loaded: ModuleType) -> None:
        *holders, name = path.split(".")
        holder: object = loaded
        for each in holders:
            holder = getattr(holder, each)
        setattr(holder, name, around(getattr(holder, name)))

    after_import(module, replace)
