"""A project as a person makes it: runners that are enabled, files that are asked for, results."""

from __future__ import annotations

import pytest

from actum import Outcome, Runtime
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox


@pytest.mark.req("004-20", "004-7")
def test_local_runs_only_where_the_project_enables_it(own_jail: Jail) -> None:
    assert own_jail.sh("true").ok
    settings = own_jail.root / "actum.toml"
    settings.write_text(settings.read_text().replace("local = true", "local = false"))
    with Runtime.open(own_jail.root) as runtime:
        result = runtime.exec("shell", stdin="true", cwd=own_jail.work)
    assert result.outcome is Outcome.REJECTED
    assert "RUNNER_UNAVAILABLE" in result.reason_codes


@pytest.mark.req("000-9")
def test_an_input_file_must_exist_and_be_readable_by_policy(own_jail: Jail) -> None:
    (own_jail.work / "in").write_text("content")
    (own_jail.elsewhere / "in").write_text("content")
    asked = {"cwd": own_jail.work}
    good = own_jail.runtime.exec("shell", stdin="cat in", files=["in"], **asked)
    assert own_jail.said(good) == "content"
    for name in ("missing", str(own_jail.elsewhere / "in"), "../../elsewhere/in"):
        result = own_jail.runtime.exec("shell", stdin="cat in", files=[name], **asked)
        assert result.outcome is Outcome.REJECTED, name


@pytest.mark.req("000-185")
def test_a_run_is_recorded_with_what_decides_whether_another_is_the_same(own_jail: Jail) -> None:
    result = own_jail.sh("echo hi; printf a > /artifacts/a", "argument")
    receipt = own_jail.runtime.services.receipts.path(result.receipt_id)
    own_jail.runtime.services.receipts.export(result.receipt_id)
    import base64
    import json

    envelope = json.loads(receipt.read_text())
    statement = base64.b64decode(envelope["payload"]).decode()
    predicate = json.loads(statement)["predicate"]
    text = json.dumps(predicate)
    assert "TL-010" in text
    assert "sha256" in text
    assert "enforcement" in text
    assert result.result is not None
    assert result.result.artifacts[0].sha256 in statement


def test_live_output_arrives_while_the_tool_runs(own_jail: Jail) -> None:
    heard: list[tuple[str, bytes]] = []

    def hear(name: str, chunk: bytes) -> None:
        heard.append((name, chunk))
        (own_jail.root / "heard").touch()  # which the tool can read, and sees as it is now

    script = "echo first; while [ ! -e ../heard ]; do sleep 0.01; done; echo second >&2"
    own_jail.sh(script, on_output=hear).check()
    assert heard == [("stdout", b"first\n"), ("stderr", b"second\n")]
