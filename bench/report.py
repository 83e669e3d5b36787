"""The measured tables of docs/performance.md, written from the results between two marks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
_SERVERS = {
    "server_of_files": "the file system server of ADP-003, kept",
    "server_that_does_nothing": "a kept server that does nothing",
}
_BEGIN, _END = "<!-- measured: begin -->\n", "<!-- measured: end -->"


def table(results: Mapping[str, Any]) -> str:
    """Markdown: our bars, the peers, and latencies under load."""
    execution = results["execution"]
    commit, load = results.get("commit", "?"), results.get("load_before", "?")
    where = f"{results.get('processors', '?')} processors, Linux {results.get('kernel', '?')}"
    lines = [
        f"One run of `make bench` at {commit} ({where}, load before it {load}):",
        "",
        "| what | bar | aim | measured |",
        "|---|---|---|---|",
        *(f"| {what} | {bar} | {aim} | {found} |" for what, bar, aim, found in _bars(results)),
        "",
        "| ÷ bare, p50 | `/bin/true` | Python snippet |",
        "|---|---|---|",
    ]
    true, python = execution["true"]["ratios"], execution["python"]["ratios"]
    lines += [
        f"| {name} | {true.get(name, '-')} | {python.get(name, '-')} |"
        for name in sorted({**true, **python}, key=lambda name: true.get(name, 1e9))
    ]
    lines += [
        f"| {name} | could not be measured here | {why.replace('|', '/')} |"
        for name, why in execution["peers_left_out"].items()
    ]
    lines += [
        "",
        "| per second, open loop | p50 ms | p95 ms | done per second |",
        "|---|---|---|---|",
    ]
    for name, rates in execution["load"].items():
        for rate, row in rates.items():
            figures = f"{row['p50_ms']} | {row['p95_ms']} | {row['done_per_second']}"
            lines.append(f"| {name}, {rate} | {figures} |")
    return "\n".join(lines) + "\n"


def _bars(results: Mapping[str, Any]) -> list[tuple[str, str, str, object]]:
    execution = results["execution"]
    memory, preload = execution["memory"], execution["preload_numpy"]
    rows: list[tuple[str, str, str, object]] = [
        (
            "governed `/bin/true` ÷ bare, p50",
            "≤ 3.0",
            "≤ 1.8",
            execution["true"]["ratios"]["actum"],
        ),
        (
            "`rt.python` ÷ bare `python3 -c`",
            "≤ 0.2",
            "≤ 0.1",
            execution["python"]["ratios"]["actum"],
        ),
        (
            "the `python` tool ÷ bare `python3 -`",
            "",
            "",
            execution["program"]["ratios"]["actum"],
        ),
        (
            "governed throughput ÷ bare, best concurrency",
            "≥ 0.12",
            "≥ 0.3",
            execution["throughput"]["ratio"],
        ),
        (
            "`actum exec` ÷ `python3 -c pass`",
            "≤ 12",
            "≤ 7",
            execution["command"]["ratios"]["actum exec"],
        ),
        (
            "1 GiB of stdout, growth of host memory",
            "< 16 MiB",
            "",
            f"{execution['stdout_1_gib']['host_memory_growth_mib']} MiB",
        ),
        (
            "numpy imported ahead ÷ bare import",
            "",
            "",
            preload.get("ratios", {}).get("actum", preload.get("left_out")),
        ),
        ("memory of a waiting sandbox", "", "", f"{memory['per_sandbox_kib']} KiB"),
        ("memory of a waiting interpreter", "", "", f"{memory['per_interpreter_kib']} KiB"),
    ]
    if "latency" in results.get("executors", {}):
        call = results["executors"]["latency"]["actum"]["p50_ms"]
        rows.append(("pure executor call, p50", "≤ 2 ms", "≤ 1 ms", f"{call} ms"))
    calls = results.get("mcp_calls", {})
    for server, words in _SERVERS.items():
        if server in calls:
            rows += [
                (
                    f"warm call of {words} ÷ the MCP library alone, called from its own loop",
                    "≤ 2",
                    "",
                    calls[server]["governed_to_library"],
                ),
                (
                    "the same, called from a thread",
                    "≤ 2",
                    "",
                    calls[server]["governed_to_library_called_from_a_thread"],
                ),
            ]
    if "ratio" in results.get("egress", {}):
        rows.append(("relay ÷ direct loopback, 1 GiB", "≥ 0.3", "", results["egress"]["ratio"]))
    if "100000" in results.get("workspace", {}):
        rows += _workspace_bars(results["workspace"])
    return rows


def _workspace_bars(sizes: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str, str, object]]:
    """10 changed files in 100,000; whole items at every size, which must not matter."""
    found = sizes["100000"]
    names = ("freeze, owned", "delta and hash", "commit")
    git = ("git freeze (add, write-tree), warm", "git commit after")
    rows: list[tuple[str, str, str, object]] = [
        (
            "freeze / delta and hash / commit, 10 changed of 100,000 files",
            "1 / 3 / 8 ms",
            "0.5 / 2 / 6 ms",
            " / ".join(str(found[name]) for name in names) + " ms",
        ),
        (
            "the same by git: freeze / commit",
            "",
            "",
            " / ".join(str(found[n]) for n in git) + " ms",
        ),
        (
            "looking through 100,000 files that others may edit",
            "",
            "",
            f"{found['scan, shared']} ms",
        ),
    ]
    for name in ("work item, owned", "work item, shared"):
        if name in found:
            each = " / ".join(str(round(sizes[size][name])) for size in ("100", "10000", "100000"))
            rows.append((f"{name}, of 100 / 10,000 / 100,000 files", "", "", f"{each} ms"))
    return rows


def write(results: Mapping[str, Any]) -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(_BEGIN)
    PAGE.write_text(before + _BEGIN + table(results) + _END + rest.partition(_END)[2])


if __name__ == "__main__":
    write(json.loads((HERE / "results.json").read_text()))
