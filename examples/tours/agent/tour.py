"""An agent that works through Actum: shell, files, pip, Python, REST and MCP, each with a receipt.

    python examples/tours/agent/tour.py

Needs no network and leaves nothing behind: the services run on loopback, the project is a temporary
folder. With a folder as argument, the project is made there and stays.

In place of a language model there is a list of its answers (`MODEL`). Everything else is what a
real agent does: call a tool, show a refusal to a person, read the result, keep the receipt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from actum import Result, Runtime

sys.path.insert(0, str(Path(__file__).parent))
import services

HERE = Path(__file__).resolve().parent
NOTES = HERE.parents[1] / "mcp" / "notes"

REPORT = """
import csv, sys
sys.path.insert(0, "vendor")          # what pip has installed
from pricing import with_tax
with open("prices.csv") as source, open("report.csv", "w") as report:
    for name, price in csv.reader(source):
        print(name, with_tax(float(price)), sep=",", file=report)
"""
TOTAL = """
import csv
rows = list(csv.reader(open("report.csv")))
with open("dearest.txt", "w") as file:
    file.write(max(rows, key=lambda row: float(row[1]))[0])
{"items": len(rows), "total": round(sum(float(price) for _, price in rows), 2)}
"""
CURIOUS = """
import urllib.request
try:
    urllib.request.urlopen("http://elsewhere.test/", timeout=5)
except OSError:
    pass                               # a program may hide it; the result does not
"""

NOWHERE = "the tool has no network"

#: What the model says, turn by turn: the tool, and its arguments.
MODEL: list[tuple[str, dict[str, Any]]] = [
    ("shell", {"script": "printf 'pen,2.00\\nink,5.50\\n' > prices.csv"}),
    ("pip", {"arguments": ["install", "--quiet", "--target", "vendor", "pricing"]}),
    ("python", {"stdin": REPORT}),
    ("files", {"code": TOTAL, "files": ["report.csv"]}),
    ("inventory:get_item", {"parameters": {"id": "7"}}),
    ("notes:remember", {"parameters": {"title": "stock", "text": "12 of ink"}}),
    ("notes:recall", {"parameters": {"title": "stock"}}),
    ("python", {"stdin": CURIOUS}),
]


class Agent:
    """The loop: one turn is one call of a tool, and its receipt."""

    def __init__(self, runtime: Runtime, project: Path) -> None:
        self._runtime = runtime
        self._project = project
        self.receipts: list[str] = []

    def turn(self, tool: str, given: dict[str, Any]) -> Result:
        result = self._call(tool, given)
        if "APPROVAL_REQUIRED" in result.reason_codes:
            self.receipts.append(result.receipt_id)  # a refusal has a receipt, too
            for violation in result.violations:
                ask_a_person(self._project, violation.value, violation.message)
            result = self._call(tool, given)
        self.receipts.append(result.receipt_id)
        return result

    def _call(self, tool: str, given: dict[str, Any]) -> Result:
        if tool == "shell":
            return self._runtime.shell(given["script"], cwd=self._project)
        if tool == "files":  # a snippet: files in, a value and files out, nothing else
            files = {name: (self._project / name).read_bytes() for name in given["files"]}
            return self._runtime.python(given["code"], files=files)
        words = given.get("arguments", [])
        rest = {name: value for name, value in given.items() if name != "arguments"}
        return self._runtime.exec(tool, *words, cwd=self._project, **rest)


def ask_a_person(project: Path, request: str, message: str) -> None:
    """A real agent shows the request and waits. Here ada approves the two services on loopback."""
    print(f"  asks: {message.split('. ')[0]}.")
    actum(project, "approvals", "approve", request, "--by", "ada", "--why", "a service of the tour")


def actum(project: Path, *words: str) -> None:
    """What a person types: `actum …`."""
    program = Path(sys.executable).with_name("actum")
    subprocess.run([program, *words], cwd=project, check=True, stdout=subprocess.DEVNULL)


def make_project(project: Path, place: str) -> None:
    """What a platform team does once: tools, settings, approvals."""
    project.mkdir(parents=True, exist_ok=True)
    actum(project, "init", "--runner", "local")
    shutil.copytree(HERE / "tools" / "inventory", project / "tools" / "inventory")
    shutil.copytree(NOTES, project / "tools" / "notes")
    with (project / "actum.toml").open("a") as settings:
        settings.write(f'\n[egress.resolve]\n"packages.test:80" = "{place}"\n')
        settings.write(f'"inventory.test:80" = "{place}"\n')
    actum(project, "config", "approve", "--by", "ada", "--why", "the services of the tour")
    for tool in ("inventory", "notes"):
        actum(project, "tools", "approve", tool, "--by", "ada", "--evidence", "the tour")


def told(result: Result) -> str:
    """What the model reads of a result."""
    facts = [result.outcome.value]
    if result.output is not None:
        facts.append(str(result.output))
    facts += [f"{name}: {result.files[name].read().decode()}" for name in result.files]
    if result.workspace is not None and result.workspace.state == "committed":
        facts.append(f"{result.workspace.created} files created")
    facts += [f"network refused: {one.host or NOWHERE}" for one in result.network_refused]
    return " · ".join(facts)


def work(project: Path) -> int:
    with services.running() as place:
        # The caller's own set-up of pip: the tool reaches this index, and no other host.
        os.environ |= {
            "PIP_INDEX_URL": "http://packages.test/simple/",
            "PIP_TRUSTED_HOST": "packages.test",
        }
        make_project(project, place)
        with Runtime.open(project) as runtime:
            agent = Agent(runtime, project)
            for tool, given in MODEL:
                print(tool)
                result = agent.turn(tool, given).check()
                print(f"  {told(result)}")
            findings = [
                finding
                for receipt in agent.receipts
                for finding in runtime.verifier.verify_execution(receipt)
            ]
    failed = [finding for finding in findings if not finding.passed]
    print(f"{len(agent.receipts)} receipts, {len(findings)} checks, {len(failed)} failed")
    return 1 if failed else 0


def main() -> int:
    if len(sys.argv) > 1:
        return work(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        return work(Path(folder).resolve() / "project")


if __name__ == "__main__":
    sys.exit(main())
