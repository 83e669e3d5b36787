"""Input files of a call are sealed for the server that lives for it, and for no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .project import small

pytestmark = pytest.mark.sandbox


def test_the_server_of_one_call_reads_what_the_call_was_judged_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small(tmp_path / "project") as rt:
        work = rt.settings.root / "work"
        file = work / "structure.json"
        file.write_text('{"n": 1}')
        runner = next(iter(rt.services.runners.values()))
        start = runner.open

        def replaced_before_the_start(*words: Any, **named: Any) -> Any:
            file.write_text('{"n": 2}')
            return start(*words, **named)

        monkeypatch.setattr(runner, "open", replaced_before_the_start)

        def asked(*files: str) -> Any:
            result = rt.exec("small:structured", cwd=work, parameters={"text": "0"}, files=files)
            assert result.result is not None, result.violations
            return json.loads(result.result.stdout)["structuredContent"]

        assert asked(str(file)) == {"n": 1}
        assert file.read_text() == '{"n": 2}'
        # The control: a file that is not named as an input is read live.
        file.write_text('{"n": 1}')
        assert asked() == {"n": 2}
        assert list((rt.settings.home / "inputs").iterdir()) == []


def test_a_server_that_is_kept_gets_none(tmp_path: Path) -> None:
    with small(tmp_path / "project", stateful=True) as rt:
        work = rt.settings.root / "work"
        (work / "file").write_text("x")
        words = {"cwd": work, "parameters": {"text": "hello"}}
        result = rt.exec("small:echo", files=[str(work / "file")], **words)
        assert result.reason_codes == ("INPUT_NOT_SEALED",)
        assert rt.exec("small:echo", **words).ok
