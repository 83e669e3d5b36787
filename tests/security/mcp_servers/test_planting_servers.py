"""What a server that writes directly plants is found when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum import Outcome, Runtime

from .project import small
from .test_calls import ask, said, statement

pytestmark = pytest.mark.sandbox

_DIRECT = '\n[workspace]\nchanges = "direct"\n'


def test_a_call_whose_server_planted_a_repository_is_no_success(tmp_path: Path) -> None:
    with small(tmp_path / "project", settings=_DIRECT) as rt:
        honest = ask(rt, "echo", "x")
        assert honest.outcome is Outcome.SUCCEEDED
        assert honest.workspace is not None
        assert (honest.workspace.mode, honest.workspace.compared) == ("direct", True)
        result = ask(rt, "misbehave", "plant")
        planted = str(rt.settings.root / "work" / "planted" / ".git")
        assert said(result) == "planted"
        assert result.outcome is Outcome.POLICY_VIOLATION
        assert result.workspace is not None
        assert result.workspace.why == (planted,)
        server = statement(rt, statement(rt, result.receipt_id)["parent_receipt"])
        assert server["outcome"] == "POLICY_VIOLATION"
        assert server["workspace"]["why"] == [planted]


def test_of_a_server_that_is_kept_its_own_record_says_it(tmp_path: Path) -> None:
    with small(tmp_path / "project", settings=_DIRECT, stateful=True) as rt:
        result = ask(rt, "misbehave", "plant")
        assert said(result) == "planted"
        assert result.workspace is not None
        assert (result.workspace.mode, result.workspace.compared) == ("direct", False)
        parent = statement(rt, result.receipt_id)["parent_receipt"]
    with Runtime.open(tmp_path / "project") as again:
        server = statement(again, parent)
        assert server["outcome"] == "POLICY_VIOLATION"
        assert server["workspace"]["why"] == [str(tmp_path / "project/work/planted/.git")]
