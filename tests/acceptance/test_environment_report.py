"""A name of `--env` that the tool does not permit: it is not passed, and everything says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum import Runtime

from .terminal import Terminal

pytestmark = pytest.mark.sandbox

_SHOW = 'echo "[$NOPE][$LANG][$LD_PRELOAD]"'
_GIVEN = ("--env", "NOPE=1", "--env", "LANG=C", "--env", "LD_PRELOAD=/x.so")


@pytest.mark.req("000-61")
def test_the_json_the_summary_and_the_check_name_it(project: Terminal) -> None:
    answer = project.shell(_SHOW, *_GIVEN)
    assert answer.json["outcome"] == "SUCCEEDED"
    assert answer.json["result"]["stdout"] == "[][C][]\n"
    assert answer.json["stripped"] == ["LD_PRELOAD", "NOPE"]
    asked = ("shell", "--stdin", "-", *_GIVEN)
    said = project.actum("exec", *asked, stdin=_SHOW.encode()).aside
    summary, *more = said.splitlines()
    assert "env LD_PRELOAD, NOPE not passed" in summary
    assert "`environment` of its tool.yaml" in next(line for line in more if "NOPE" in line)
    assert "no tool may get it" in next(line for line in more if "LD_PRELOAD" in line)
    foreseen = project.actum("check", *asked, stdin=_SHOW.encode()).text
    assert "env NOPE: the tool may not get it." in foreseen


def test_what_is_permitted_is_not_mentioned(project: Terminal) -> None:
    answer = project.shell(_SHOW, "--env", "LANG=C")
    assert answer.json["stripped"] == []
    said = project.actum("exec", "shell", "--stdin", "-", "--env", "LANG=C", stdin=b"true").aside
    assert "not passed" not in said


def test_the_library_names_it_and_a_recorded_answer_too(project: Terminal) -> None:
    with Runtime.open(project.folder) as rt:
        words = {"cwd": Path(project.folder), "stdin": "true", "set": {"execution_id": "env-1"}}
        first = rt.exec("shell", env={"NOPE": "1"}, **words)
        again = rt.exec("shell", env={"NOPE": "1"}, **words)
    assert first.ok
    assert first.stripped == again.stripped == ("NOPE",)
    assert again.replayed


def test_many_names_stay_a_line(project: Terminal) -> None:
    given = [word for n in range(50) for word in ("--env", f"NAME{n:02}={n}")]
    said = project.actum("exec", "shell", "--stdin", "-", *given, stdin=b"true").aside
    assert "env NAME00, NAME01, NAME02 and 47 more not passed" in said.splitlines()[0]
    assert len(said) < 1_000
