"""Every connection and every refused name is an event, a line in the result and in the trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from actum.evidence.traces import Traces

from .outside import Net, http_server, said

pytestmark = pytest.mark.sandbox
SCRIPT = """
curl -sS http://api.test/; echo
curl -sS http://evil.test/ || true
curl -sS http://x.w.test/ || true
"""


@pytest.mark.req("000-54")
def test_result_trace_and_receipt_tell_of_each_connection_and_refused_name(tmp_path: Path) -> None:
    with http_server() as web:
        resolve = {"api.test:80": web.place, "x.w.test:80": web.place}
        net = Net(tmp_path, hosts=["api.test", "*.w.test"], outbound=("http",), resolve=resolve)
        result = net.run(SCRIPT)
        assert said(result) == ["hello api.test"]
        told = [(one.host, one.port, one.address, bool(one.refused)) for one in result.egress]
        assert told == [
            ("api.test", 80, "127.0.0.1", False),
            ("evil.test", 0, "", True),
            ("x.w.test", 80, "127.0.0.1", True),
        ]
        denied = [(one.kind, one.target.split()[0]) for one in result.denials]
        assert denied == [("network", "evil.test:0"), ("network", "x.w.test:80")]
        events = [
            event
            for event in Traces(net.runtime.database).of_execution(result.execution_id)
            if event["event_type"] == "egress"
        ]
        assert [event["data"] for event in events] == result.document()["egress"]
        assert {event["execution_id"] for event in events} == {result.execution_id}
        assert all(event["ts"] for event in events)
        findings = net.runtime.verifier.verify_execution(result.receipt_id)
        assert all(finding.passed for finding in findings)
        shown = subprocess.run(
            [sys.executable, "-m", "actum.doors.cli.main", "trace", result.execution_id],
            capture_output=True,
            text=True,
            cwd=net.work,
            check=True,
        ).stdout
        lines = [line for line in shown.splitlines() if "  egress  " in line]
        assert [json.loads(line[line.index("{") :])["host"] for line in lines] == [
            "api.test",
            "evil.test",
            "x.w.test",
        ]
        net.close()


LITERAL = """
import socket
for family, address in ((socket.AF_INET, "192.0.2.7"), (socket.AF_INET6, "2001:db8::7")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as tried:
            try:
                tried.connect((address, 80))
                print("connected")
            except OSError as error:
                print(error.strerror)
"""


@pytest.mark.req("000-54")
def test_at_level_open_an_address_literal_is_refused_and_reported_as_a_denial(
    tmp_path: Path,
) -> None:
    """The names of the same machine are reached, and are no denial."""
    with http_server() as web:
        resolve = {"api.test:80": web.place}
        hosts = ["*", "api.test"]
        net = Net(tmp_path, hosts=hosts, outbound=("http",), resolve=resolve)
        by_name = net.run("curl -sS http://api.test/; echo", level="open")
        assert said(by_name) == ["hello api.test"]
        assert by_name.denials == ()
        result = net.run(f"curl -sS http://api.test/; echo; python3 -c '{LITERAL}'", level="open")
        assert said(result) == ["hello api.test", *["Network is unreachable"] * 4]
        (denial,) = result.denials
        assert (denial.kind, denial.target) == ("network", "address literal: no route")
        assert denial.count == 4
        net.close()
