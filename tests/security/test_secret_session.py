"""A secret given to a Python session is taken out of what its calls say, and of its record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from secret_project import NAME, make, open_project

from actum import Outcome

VALUE = "correct horse battery/staple+0815"


@pytest.mark.sandbox
def test_no_call_of_a_session_lets_its_secret_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPERATORS_TOKEN", VALUE)
    root = make(tmp_path, {NAME: '{ env = "OPERATORS_TOKEN" }'})
    with open_project(root) as rt:
        heard: list[bytes] = []
        with rt.python_session(set={"inputs.secrets": {NAME: "env"}}) as s:
            s.run(f"import os, sys\ntoken = os.environ[{NAME!r}]")
            assert s.run(f"token == {VALUE!r}").output is True  # it is there
            # In halves, so that no single frame holds it, and as a value, and on stderr.
            said = s.run(
                "import time\n"
                "for part in (token[:9], token[9:]):\n"
                "    sys.stdout.write(part); sys.stdout.flush(); time.sleep(0.2)\n"
                "sys.stderr.write(token)\n"
                "{'token': token}",
                on_output=lambda _stream, chunk: heard.append(chunk),
            )
        whole = s.close()
        for text in (
            b"".join(heard).decode(),
            json.dumps(said.document()),
            json.dumps(whole.document()),
        ):
            assert VALUE not in text
            assert json.dumps(VALUE)[1:-1] not in text
        assert said.outcome is Outcome.SUCCEEDED
        assert said.result is not None
        assert NAME in said.result.stdout  # the marker is there instead
        assert NAME in said.result.stderr
        assert VALUE not in json.dumps(said.output)
        home = rt.settings.home
    kept = b"".join(file.read_bytes() for file in home.rglob("*") if file.is_file())
    assert VALUE.encode() not in kept
    # The code that was asked for is no output, and is kept nowhere either.
    assert b"import os, sys" not in kept
