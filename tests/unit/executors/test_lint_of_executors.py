"""The lint names the line. It is a help for honest authors, and no wall."""

from __future__ import annotations

import pytest

from actum.executors.lint import lint

CASES = {
    "import os": (1, "import", "os is not a pure module"),
    "from subprocess import run": (1, "import", "subprocess"),
    "from . import neighbour": (1, "import", "no neighbours"),
    "import random": (1, "import", "random"),
    "x = 1\nopen('f')": (2, "call", "open() reads or writes a file"),
    "eval('1')": (1, "call", "eval()"),
    "def f():\n    return id(f)": (2, "call", "id()"),
    "__import__('os')": (1, "call", "__import__"),
    "from datetime import datetime\ndatetime.now()": (2, "ambient", ".now reads the clock"),
    "import json\njson.os.environ": (2, "ambient", ".environ reads the environment"),
    "().__class__.__subclasses__()": (1, "internals", ".__subclasses__"),
    "def f():\n    global x\n    x = 1": (2, "state", "global x"),
    "import json\njson.loads = 1": (2, "state", "json is shared"),
    "import json\njson.cache['a'] = 1": (2, "state", "json is shared"),
    "import json\ndel json.loads": (2, "state", "json is shared"),
    "import re\nre.names.append(1)": (2, "state", "re is shared"),
    "class E:\n    def execute(self, req):\n        req.payload['a'] = 1": (
        3,
        "state",
        "req is the caller's",
    ),
    "class E:\n    def execute(self, r):\n        r.payload.update(a=1)": (
        3,
        "state",
        "r is the caller's",
    ),
    "class E:\n    def execute(self, req):\n        self.version = '2'": (
        3,
        "immutable",
        "version is fixed",
    ),
    "class E:\n    def execute(self, req):\n        self.limits['a'] = 2": (
        3,
        "immutable",
        "limits is fixed",
    ),
    "class E:\n    def execute(self, req):\n        self.capabilities.append('A')": (
        3,
        "immutable",
        "capabilities",
    ),
    "class E:\n    def execute(self, req):\n        self.version, x = 1, 2": (
        3,
        "immutable",
        "version",
    ),
    "async def f():\n    pass": (1, "async", "waited for"),
    "def f(:": (1, "syntax", "not Python"),
}


@pytest.mark.req("001-73")
@pytest.mark.parametrize("source", CASES)
def test_what_is_not_pure_is_named_with_its_line(source: str) -> None:
    line, rule, text = CASES[source]
    found = lint(source.encode())
    assert any((each.line, each.rule) == (line, rule) and text in each.message for each in found)


BLANKET = [
    "try:\n    f()\nexcept:\n    pass",
    "try:\n    f()\nexcept Exception:\n    pass",
    "try:\n    f()\nexcept BaseException:\n    x = 1",
    "try:\n    f()\nexcept (ValueError, Exception) as e:\n    x = e",
    "try:\n    f()\nexcept Exception:\n    def g():\n        raise\n",
]


@pytest.mark.req("001-29")
@pytest.mark.parametrize("source", BLANKET)
def test_a_blanket_except_is_flagged(source: str) -> None:
    (found,) = lint(source.encode())
    assert (found.line, found.rule) == (3, "blanket except")
    assert "line 3: blanket except" in str(found)


SPARED = [
    "try:\n    f()\nexcept ValueError:\n    pass",
    "try:\n    f()\nexcept Exception:\n    raise",
    "try:\n    f()\nexcept Exception as e:\n    raise ValueError('x') from e",
    "import json, re\nfrom collections import Counter\njson.loads('1')",
    "x = {}\nx['a'] = 1\nx.update(b=2)\ny = []\ny.append(1)",
    "class E:\n    def execute(self, req):\n        out = dict(req.payload)\n        out['a'] = 1",
    "from urllib.parse import quote\nimport collections.abc",
]


@pytest.mark.req("001-29")
@pytest.mark.parametrize("source", SPARED)
def test_ordinary_code_is_left_alone(source: str) -> None:
    assert lint(source.encode()) == ()


@pytest.mark.parametrize("source", [b"\xff", b"a\0b", b"(" * 5000, b"x = " + b"-" * 200_000 + b"1"])
def test_source_that_cannot_be_read_is_an_objection_and_not_a_crash(source: bytes) -> None:
    assert [each.rule for each in lint(source)] == ["syntax"]
