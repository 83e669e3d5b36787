"""An api call beside the same call without a sandbox.

The service is on loopback and answers at once. A bare interpreter makes the call, and an execution
with its sandbox, relay, checks and receipt makes it. A name that resolves to loopback needs an
approval each time; the approval is not timed.
"""

from __future__ import annotations

import http.server
import json
import os
import resource
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import yaml
from measured import ratios, summary
from project import project

from actum import Runtime
from actum.contract.os_user import os_user
from actum.evidence.records.audit import Decision
from actum.registry.approval_workflow import approve
from actum.registry.pinned_settings import approve_settings
from actum.store.keys import Keyring

ROUNDS = 30
_EXAMPLE = Path(__file__).parents[1] / "examples/api/rest"
_BARE = "import json, sys, urllib.request as u; json.loads(u.urlopen(sys.argv[1]).read())['data']"


class _Service(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"data": {"id": 7}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def measure() -> dict[str, Any]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with project() as root:
            _add_tool(root, server.server_port)
            with Runtime.open(root) as runtime:
                return _compared(runtime, server.server_port)
    finally:
        server.shutdown()
        server.server_close()


def _add_tool(root: Path, port: int) -> None:
    folder = root / "tools/rest"
    shutil.copytree(_EXAMPLE, folder)
    tool = yaml.safe_load((folder / "tool.yaml").read_text())
    tool["scope"] |= {
        "network": "on",
        "hosts": ["service.test"],
        "endpoints": ["http://service.test/v1"],
    }
    tool["permissions"]["network"]["outbound"] = ["http"]
    tool["permissions"]["secrets"]["allowed"] = []
    (folder / "tool.yaml").write_text(yaml.safe_dump(tool))
    file = folder / "adapters/rest-api-client.yaml"
    adapter = yaml.safe_load(file.read_text())
    adapter["interface"]["api"] |= {"base_url": "http://service.test/v1", "auth_method": "none"}
    adapter["sandbox_override"]["network"]["allow"] = ["service.test"]
    file.write_text(yaml.safe_dump(adapter))
    keyring = Keyring.open(root / ".actum")
    approve(root, keyring, "rest", by="user:bench", evidence="bench", date="2026-11-15")
    with (root / "actum.toml").open("a") as settings:
        settings.write(f'\n[egress.resolve]\n"service.test:80" = "127.0.0.1:{port}"\n')
    approve_settings(
        root, root / ".actum", by="user:bench", user=os_user(), date="2026-11-15", why="bench"
    )


def _call(runtime: Runtime) -> Any:
    return runtime.exec("rest:get_resource", adapter_id="ADP-002", parameters={"id": 7})


def _compared(runtime: Runtime, port: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/v1/resources/7"
    samples: dict[str, list[float]] = {"bare_python": [], "api_call": []}
    processor: dict[str, float] = {}
    for turn in range(ROUNDS + 1):
        for name, wall in samples.items():
            if name == "api_call":
                for violation in _call(runtime).violations:
                    runtime.approvals.decide(
                        violation.value, Decision.ALLOW, by="user:boss", why="bench"
                    )
            before, began = _processor_s(), time.perf_counter()
            if name == "api_call":
                result = _call(runtime).check()
                assert result.output == {"id": 7}
            else:
                subprocess.run(["python3", "-I", "-c", _BARE, url], check=True)
            if turn:  # the first one warms up
                wall.append((time.perf_counter() - began) * 1000)
                processor[name] = processor.get(name, 0.0) + _processor_s() - before
    results = {name: summary(values) for name, values in samples.items()}
    return {
        **results,
        "ratio_to_bare_python": ratios(results, "bare_python"),
        "own_process_ms_per_call": round(processor["api_call"] * 1000 / ROUNDS, 2),
        "processors": os.cpu_count(),
    }


def _processor_s() -> float:
    """Of this process alone; sandboxes are children of the spawner."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
