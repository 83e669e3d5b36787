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
    "try:\n    f()\nexcept Exception:\n    if f: raise\n",
    "try:\n    f()\nexcept Exception:\n    while f:\n        break\n    else:\n        raise\n",
    "from dataclasses import Exception as E\ntry: f()\nexcept E: pass",
    "import dataclasses\ntry: f()\nexcept dataclasses.builtins.Exception: pass",
    "E = Exception\ntry: f()\nexcept E: pass",
    "E = F = Exception\ntry: f()\nexcept F: pass",
    "(E,) = (Exception,)\ntry: f()\nexcept E: pass",
    "E = (KeyError, Exception)\ntry: f()\nexcept E: pass",
    "KeyError = Exception\ntry: f()\nexcept KeyError: pass",
    "class A: E = Exception\ntry: f()\nexcept A.E: pass",
    "E = E\ntry: f()\nexcept E: pass",
    "\ntry: f()\nexcept [Exception][0]: pass",
    "\ntry: f()\nexcept type(f()): pass",
    "\ntry: f()\nexcept* Exception: pass",
    "def g(E=Exception):\n  try: f()\n  except E: pass",
]


@pytest.mark.req("001-29")
@pytest.mark.parametrize("source", BLANKET)
def test_a_blanket_except_is_flagged(source: str) -> None:
    (found,) = lint(source.encode())
    assert (found.line, found.rule) == (3, "blanket except")
    assert "line 3: blanket except" in str(found)


SWALLOWING = {
    "def g():\n  try: f()\n  finally: return ''": "leaving finally",
    "for x in f():\n  try: f()\n  finally: break": "leaving finally",
    "for x in f():\n  try: f()\n  finally: continue": "leaving finally",
    "\nclass M:\n  def __exit__(self, *a): return True": "swallowing exit",
    "\nclass M:\n  def __exit__(self, *a): return a": "swallowing exit",
    "\nclass M:\n  def __exit__(self, *a): yield": "swallowing exit",
    "def g(*a): return 1\nclass M:\n  __exit__ = g": "swallowing exit",
    "class M: pass\n\nM.__exit__ = lambda *a: 1": "swallowing exit",
    "class M: pass\n\nsetattr(M, '__exit__', len)": "swallowing exit",
    "\n\nM = type('M', (), {'__exit__': len})": "swallowing exit",
}


@pytest.mark.req("001-29")
@pytest.mark.parametrize("source", SWALLOWING)
def test_code_that_ends_an_exception_in_another_way_is_flagged(source: str) -> None:
    (found,) = lint(source.encode())
    assert (found.line, found.rule) == (3, SWALLOWING[source])


SPARED = [
    "try:\n    f()\nexcept Exception:\n    if f:\n        raise\n    else:\n        raise KeyError",
    "E = (KeyError, ValueError)\nF = E\ntry: f()\nexcept F: pass",
    "import json\nfrom re import error\ntry: f()\nexcept (json.JSONDecodeError, error): pass",
    "class Mine(Exception): pass\ntry: f()\nexcept Mine: pass",
    "try: f()\nfinally:\n    for x in f():\n        break\n    g = lambda: 1",
    "class M:\n  def __enter__(self): return self\n  def __exit__(self, *a): return False\n",
    "class M:\n  def __exit__(self, *a):\n    def g(): return True\n    g()\n",
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
