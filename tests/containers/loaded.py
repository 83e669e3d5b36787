"""Tests of other folders, to be run again with other fixtures: here with a container's."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

_TESTS = Path(__file__).resolve().parent.parent


def chosen_tests(chosen: Mapping[str, Sequence[str]]) -> dict[str, Callable[..., None]]:
    """Test functions by a name of their own. `chosen`: file -> names of tests in it."""
    found = {}
    for file, names in chosen.items():
        module = _load(_TESTS / file)
        for name in names:
            test = getattr(module, name)
            found[f"{name}__{Path(file).stem.removeprefix('test_')}"] = test
    return found


def _load(path: Path) -> ModuleType:
    name = "in_containers_" + "_".join(path.relative_to(_TESTS).with_suffix("").parts)
    if name not in sys.modules:
        # Its neighbours are imported by their bare names, as pytest lets it.
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]
