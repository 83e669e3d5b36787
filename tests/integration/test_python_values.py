"""What a snippet's last expression is comes back: as JSON, or as a mark. Never as None."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Result, Runtime

pytestmark = pytest.mark.sandbox

Value = Callable[[str], Any]


@pytest.fixture(scope="module", params=["pool", "no-pool", "session"])
def value(request: pytest.FixtureRequest) -> Iterator[Value]:
    """The output of a snippet that succeeds."""
    with Runtime.temporary(pool=request.param == "pool") as rt, ExitStack() as stack:
        run: Callable[[str], Result] = rt.python
        if request.param == "session":
            run = stack.enter_context(rt.python_session(idle_s=600)).run

        def of(code: str) -> Any:
            result = run(code)
            assert result.outcome is Outcome.SUCCEEDED, result.result
            json.dumps(result.document(), allow_nan=False)
            return result.output

        yield of


DATES = "import datetime as d\n[d.date(2024, 1, 2), d.datetime(2024, 1, 2, 3), d.time(4, 5)]"
DATACLASS = "import dataclasses as d\n@d.dataclass\nclass P:\n    x: int\n    y: set\nP(1, {2})"
BUILTIN = "builtin_function_or_method"
CLASS = "class C:\n    def __repr__(self): "
EXACT = [
    ("{2, 1}", [1, 2]),
    ("{'b', 1, None}", [None, 1, "b"]),
    ("frozenset()", []),
    ("(1, (2,))", [1, [2]]),
    ("range(3)", [0, 1, 2]),
    ("{'a': 1}.items()", [["a", 1]]),
    ("import collections\ncollections.deque([1])", [1]),
    (DATES, ["2024-01-02", "2024-01-02T03:00:00", "04:05:00"]),
    ("import decimal\ndecimal.Decimal('1.10')", "1.10"),
    ("import pathlib\npathlib.Path('/a')", "/a"),
    ("import uuid\nuuid.UUID(int=1)", "00000000-0000-0000-0000-000000000001"),
    ("import enum\nclass E(enum.Enum): A = 'a'\n[E.A, {E.A: E.A}]", ["a", {"a": "a"}]),
    (DATACLASS, {"x": 1, "y": [2]}),
    ("{1: 'a', 2.5: 'b', None: 'c', True: 'd'}", {"1": "d", "2.5": "b", "null": "c"}),
    ("2 ** 53 + 1", 2**53 + 1),
    ("[10 ** 1000]", [10**1000]),
    ("False", False),
    ("''", ""),
    ("{'$ref': '#/a'}", {"$ref": "#/a"}),
    ("'x' * (4 << 20)", "x" * (4 << 20)),
    ("class S(str): pass\nS('q')", "q"),
]


@pytest.mark.parametrize(("code", "expected"), EXACT, ids=[code for code, _ in EXACT])
def test_a_value_with_one_obvious_form_in_json_has_that_form(
    value: Value, code: str, expected: Any
) -> None:
    assert value(code) == expected


MARKED = [
    ("b'\\x00a'", {"$type": "bytes", "$base64": "AGE="}),
    ("{(1, 2): 3}", {"$type": "dict", "$items": [[[1, 2], 3]]}),
    ("{1: 'a', '1': 'b'}", {"$type": "dict", "$items": [[1, "a"], ["1", "b"]]}),
    ("{'$type': 'mine'}", {"$type": "dict", "$items": [["$type", "mine"]]}),
    ("float('nan')", {"$type": "float", "$repr": "nan"}),
    ("[1.5, float('-inf')]", [1.5, {"$type": "float", "$repr": "-inf"}]),
    ("3 + 4j", {"$type": "complex", "$repr": "(3+4j)"}),
    ("...", {"$type": "ellipsis", "$repr": "Ellipsis"}),
    ("{'a': print}", {"a": {"$type": BUILTIN, "$repr": "<built-in function print>"}}),
    ("10 ** 5000", {"$type": "int", "$repr": hex(10**5000)}),
    ("x = [1]\nx.append(x)\nx", [1, {"$type": "list", "$repr": "[1, [...]]"}]),
    (CLASS + "return 'me'\n[C()]", [{"$type": "__main__.C", "$repr": "me"}]),
]


@pytest.mark.parametrize(("code", "expected"), MARKED, ids=[code for code, _ in MARKED])
def test_any_other_value_is_a_mark_with_its_type(value: Value, code: str, expected: Any) -> None:
    assert value(code) == expected


@pytest.mark.parametrize("how", ["raise ValueError", "raise SystemExit(3)", "return 5", "1 / 0"])
def test_an_object_whose_repr_fails_is_a_mark_all_the_same(value: Value, how: str) -> None:
    found = value(f"{CLASS}{how}\nC()")
    assert found["$type"] == "__main__.C" and "its repr raised" in found["$repr"]


def test_an_object_whose_methods_exit_is_a_mark_all_the_same(value: Value) -> None:
    found = value("class D(dict):\n    def items(self):\n        raise SystemExit(0)\nD(a=1)")
    assert found == {"$type": "__main__.D", "$repr": "{'a': 1}"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (f"{CLASS}return 'x' * (64 << 20)\nC()", "__main__.C"),
        ("'x' * (64 << 20)", "str"),
        ("[0] * (16 << 20)", "list"),
        ("[['x' * 1024] * 1024] * 1024", "list"),
        ("bytes(64 << 20)", "bytes"),
        ("range(10 ** 9)", "range"),
    ],
)
def test_a_value_that_is_too_long_is_cut_and_says_so(value: Value, code: str, kind: str) -> None:
    found = value(code)
    assert (found["$type"], found["$truncated"]) == (kind, True)
    assert 1 <= len(found["$repr"]) <= 16_384


def test_a_value_that_is_nested_too_deeply_is_cut_at_a_depth_that_json_has(value: Value) -> None:
    found = value("x = 'in'\nfor _ in range(500): x = [x]\nx")
    depth = 0
    while isinstance(found, list):
        found, depth = found[0], depth + 1
    assert depth > 50 and found["$type"] == "list"


def test_objects_that_lie_about_themselves_are_data(value: Value) -> None:
    lies = (
        "class L:\n    __class__ = dict\n    def __reduce__(self): return (print, ('host',))\n"
        "class I(dict):\n    def items(self): raise KeyError\n"
        "class M(type):\n    def __getattribute__(self, name): raise ValueError\n"
        "class X(metaclass=M): pass\n"
        "[L(), I(a=1), X()]"
    )
    found = value(lies)
    assert [sorted(each) for each in found] == [["$repr", "$type"]] * 3


NUMPY = subprocess.run(["/usr/bin/python3", "-c", "import numpy"], capture_output=True).returncode
NUMPY_VALUES = [
    ("n.float32(1.5)", 1.5),
    ("n.int64(3)", 3),
    ("n.bool_(True)", True),
    ("n.arange(4).reshape(2, 2)", [[0, 1], [2, 3]]),
    ("{n.int64(1): n.array(['a'])}", {"1": ["a"]}),
    ("n.array([1.0, n.nan])", [1.0, {"$type": "float", "$repr": "nan"}]),
    ("n.datetime64('2024-01-02')", "2024-01-02"),
    ("n.array(['2024-01-02'], dtype='M8[s]')", ["2024-01-02T00:00:00"]),
    ("n.array([{1}, None], dtype=object)", [[1], None]),
]


@pytest.mark.skipif(NUMPY != 0, reason="the system's Python has no numpy")
@pytest.mark.parametrize(("code", "expected"), NUMPY_VALUES, ids=[code for code, _ in NUMPY_VALUES])
def test_values_of_numpy_are_numbers_and_lists(value: Value, code: str, expected: Any) -> None:
    assert value(f"import numpy as n\n{code}") == expected


@pytest.mark.skipif(NUMPY != 0, reason="the system's Python has no numpy")
def test_a_long_array_is_cut(value: Value) -> None:
    found = value("import numpy as n\nn.zeros(1 << 24)")
    assert (found["$type"], found["$truncated"]) == ("numpy.ndarray", True)


def test_no_module_is_imported_to_check_a_value() -> None:
    with Runtime.temporary(pool=False) as rt, rt.python_session() as session:
        assert session.run("[object(), {1}]").output[1] == [1]
        look = "import sys\nsorted({'numpy', 'pandas', 'decimal', 'uuid'} & {*sys.modules})"
        assert session.run(look).output == []


PANDAS = subprocess.run(["/usr/bin/python3", "-c", "import pandas"], capture_output=True).returncode


@pytest.mark.skipif(PANDAS != 0, reason="the system's Python has no pandas")
def test_a_table_of_pandas_is_the_arguments_of_its_class(value: Value) -> None:
    code = "import pandas as p\np.DataFrame({'a': [1, 2], 'b': [1.5, None]}, index=['x', 'y'])"
    data = [[1, 1.5], [2, None]]
    assert value(code) == {"columns": ["a", "b"], "index": ["x", "y"], "data": data}
    series = "import pandas as p\np.Series([1, 2], name='n')"
    assert value(series) == {"name": "n", "index": [0, 1], "data": [1, 2]}


WAIT = (
    "import os, time\nprint('first')\nend = time.monotonic() + 30\n"
    "while not os.path.exists('seen') and time.monotonic() < end: time.sleep(0.01)\n"
    "os.path.exists('seen')"
)


@pytest.mark.parametrize("pool", [True, False])
@pytest.mark.parametrize("how", ["forked", "executed", "session"])
def test_a_print_reaches_on_output_while_the_snippet_runs(pool: bool, how: str) -> None:
    """The snippet waits for a file that the callback makes."""
    with Runtime.temporary(pool=pool) as rt:
        folder = rt.settings.root
        for _ in range(2):  # with a pool, the second one is served by a waiting interpreter
            said: list[tuple[str, bytes]] = []

            def on_output(name: str, chunk: bytes, said: Any = said) -> None:
                said.append((name, chunk))
                (folder / "seen").touch()

            if how == "session":
                with rt.python_session(cwd=folder) as session:
                    result = session.run(WAIT, on_output=on_output)
            else:
                # Another locale than the spawner's: an interpreter of its own is executed.
                env = {"LC_ALL": "C.ISO-8859-1"} if how == "executed" else {}
                result = rt.python(WAIT, cwd=folder, env=env, on_output=on_output)
            assert (result.outcome, result.output) == (Outcome.SUCCEEDED, True), result.result
            assert said == [("stdout", b"first\n")]
            (folder / "seen").unlink()


def test_cwd_is_the_working_directory_or_is_refused_by_its_field(tmp_path: Path) -> None:
    with Runtime.temporary() as rt:
        folder = rt.settings.root / "data"
        folder.mkdir()
        (folder / "a.txt").write_text("a")
        look = "import os\n[os.getcwd(), open('a.txt').read()]"
        for cwd in (folder, str(folder), "data"):
            assert rt.python(look, cwd=cwd).output == [str(folder), "a"]
            with rt.python_session(cwd=cwd) as session:
                assert session.run(look).output == [str(folder), "a"]
        assert rt.python("import os\nos.getcwd()").output == "/tmp"
        refused = rt.python(look, cwd=tmp_path)
        assert refused.outcome is Outcome.REJECTED
        assert [each.field for each in refused.violations] == ["inputs.working_directory"]
