"""The measured tables of docs/performance.md, written from the results between two marks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
_SERVERS = {
    "server_of_files": "the file system server of ADP-003, kept",
    "server_that_does_nothing": "a kept server that does nothing",
}
_BEGIN, _END = "<!-- measured: begin -->\n", "<!-- measured: end -->"

#: A higher load before the run, or more processors used by others during a part, counts as busy.
_BUSY_LOAD, _BUSY_PROCESSORS = 0.7, 0.2

#: Kind of request -> the ratio to bare that we aim for.
_AIMS = {"script": "≤ 2.0", "arguments": "≤ 1.5", "directory": "≤ 2.0", "snippet": "≤ 0.2"}
#: Kind of request -> the ratio to an older commit that is permitted.
_BARS = {"snippet": "≤ 1.3"}
_OTHER_BARS = "≤ 1.15"

#: What was measured, bar, aim, requests that differ, the same request again.
Row = tuple[str, str, str, object, object]


def table(results: Mapping[str, Any]) -> str:
    """Markdown: requests, caches, our bars, the peers, and latencies under load."""
    lines = [*_run(results), "", *_requests(results["requests_that_differ"]), ""]
    lines += ["| what | bar | aim | measured | repeated |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in _bars(results)]
    if "100" in results.get("transactions", {}):
        lines += ["", *_transactions(results["transactions"])]
    if "direct" in results.get("sealed_inputs", {}):
        lines += ["", *_sealed_inputs(results["sealed_inputs"])]
    if "starts" in results.get("containers", {}):
        lines += ["", *_containers(results["containers"])]
    if "ratio" in results.get("images", {}):
        lines += ["", *_images(results["images"])]
    if "library" in results.get("calls", {}):
        lines += ["", *_calls(results["calls"])]
    lines += ["", *_caches(results), "", *_peers(results["execution"]), ""]
    lines += ["| per second, open loop | p50 ms | p95 ms | done per second |", "|---|---|---|---|"]
    for name, rates in results["execution"]["load"].items():
        for rate, row in rates.items():
            figures = f"{row['p50_ms']} | {row['p95_ms']} | {row['done_per_second']}"
            lines.append(f"| {name}, {rate} | {figures} |")
    return "\n".join(lines) + "\n"


def _run(results: Mapping[str, Any]) -> Iterator[str]:
    """Of which version, where, and what disturbed it."""
    against = results["requests_that_differ"]["against"]
    command = "make bench" if against is None else f"make bench AGAINST={against}"
    load = results["load_before"]
    others = results["parts"]["requests_that_differ"]["processors_used_by_others"]
    yield (
        f"One run of `{command}` at {results['commit']} ({results['processors']} processors, "
        f"Linux {results['kernel']}). The load before it was {load}. While requests were measured, "
        f"other processes used {others} processors."
    )
    if load > _BUSY_LOAD:
        yield ""
        yield f"**The machine was busy before it**: the load of a quiet one is below {_BUSY_LOAD}."
    used = {part: row["processors_used_by_others"] for part, row in results["parts"].items()}
    busy = [f"{part} ({each})" for part, each in used.items() if each > _BUSY_PROCESSORS]
    if busy:
        yield ""
        yield (
            "**The machine was busy** during these parts, with so many processors used by other "
            f"processes: {', '.join(busy)}. Their figures are those of a busy machine."
        )
    if results["uncommitted"]:
        yield ""
        yield f"**With uncommitted changes** to {', '.join(results['uncommitted'])}."


def _requests(found: Mapping[str, Any]) -> Iterator[str]:
    against = found["against"]
    head = ["request", "aim ÷ bare", "÷ bare", "repeated ÷ bare"]
    if against is not None:
        head += [f"bar ÷ {against}", f"÷ {against}", f"repeated ÷ {against}"]
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for kind, ways in found["kinds"].items():
        differ, repeated = ways["differ"]["ratios"], ways["repeated"]["ratios"]
        cells = [found["labels"][kind], _AIMS.get(kind, ""), differ["bare"], repeated["bare"]]
        if against is not None:
            cells += [_BARS.get(kind, _OTHER_BARS), differ["against"], repeated["against"]]
        yield f"| {' | '.join(str(cell) for cell in cells)} |"


def _calls(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| Python calls of one execution | all | of Actum's functions | between rooms | modules |"
    yield "|---|---|---|---|---|"
    ways = {"library": "`rt.exec`, a new argument", "command": "`actum exec`, with its imports"}
    for way, label in ways.items():
        for version, row in found[way].items():
            name = label if version == "actum" else f"{label}, at {found['against']}"
            yield f"| {name} | {' | '.join(str(count) for count in row.values())} |"


def _caches(results: Mapping[str, Any]) -> Iterator[str]:
    found = results["caches"]
    yield "| cache | requests that differ | repeated | no hit when these differ |"
    yield "|---|---|---|---|"
    for name, ways in found["caches"].items():
        differ, repeated = ways.get("differ", {}), ways.get("repeated", {})
        never = ", ".join(kind for kind, (hits, _asked) in differ.items() if not hits)
        yield f"| {name} | {_rate(differ)} | {_rate(repeated)} | {never} |"
    yield ""
    yield (
        f"Hits of all look-ups, {found['requests_of_each_kind']} requests of each kind in turn. "
        "Beside the kinds of the first table these are: "
        + "; ".join(f"*{kind}*, {label}" for kind, label in found["labels"].items())
        + "."
    )


def _rate(kinds: Mapping[str, list[int]]) -> str:
    hits, asked = (sum(row[at] for row in kinds.values()) for at in (0, 1))
    return f"{hits} of {asked} ({100 * hits // asked} %)" if asked else "not used"


def _peers(execution: Mapping[str, Any]) -> Iterator[str]:
    yield "| ÷ bare, p50 | `/bin/true` | Python snippet |"
    yield "|---|---|---|"
    true, python = execution["true"]["ratios"], execution["python"]["ratios"]
    for name in sorted({**true, **python}, key=lambda name: true.get(name, 1e9)):
        yield f"| {name} | {true.get(name, '-')} | {python.get(name, '-')} |"
    for name, why in execution["peers_left_out"].items():
        yield f"| {name} | could not be measured here | {why.replace('|', '/')} |"


def _bars(results: Mapping[str, Any]) -> Iterator[Row]:
    execution = results["execution"]
    rates, command = execution["throughput"]["ratios"], execution["command"]["ratios"]
    yield (
        "governed throughput ÷ bare, `/bin/true`, best concurrency",
        "≥ 0.12",
        "≥ 0.3",
        rates["actum"],
        rates["actum, repeated"],
    )
    yield (
        "`actum exec` ÷ `python3 -c pass`",
        "≤ 12",
        "≤ 7",
        command["actum"],
        command["actum, repeated"],
    )
    growth = f"{execution['stdout_1_gib']['host_memory_growth_mib']} MiB"
    yield "1 GiB of stdout, growth of host memory", "< 16 MiB", "", growth, ""
    preload = execution["preload_numpy"]
    numpy = preload.get("ratios", {}).get("actum", preload.get("left_out"))
    yield "numpy imported ahead ÷ bare import", "", "", numpy, ""
    memory = execution["memory"]
    yield "memory of a prepared sandbox", "", "", f"{memory['per_sandbox_kib']} KiB", ""
    yield "memory of an interpreter", "", "", f"{memory['per_interpreter_kib']} KiB", ""
    if "latency" in results.get("executors", {}):
        latency = results["executors"]["latency"]
        calls = [f"{latency[name]['p50_ms']} ms" for name in ("actum", "actum, repeated")]
        yield "pure executor call, p50", "≤ 2 ms", "≤ 1 ms", calls[0], calls[1]
    yield from _mcp_bars(results.get("mcp_calls", {}))
    if "submit_to_start" in results.get("durable_runs", {}):
        runs = results["durable_runs"]
        started, killed = runs["submit_to_start"]["p50_ms"], runs["kill_to_action"]["p50_ms"]
        yield "durable run, from submit to start, p50", "≤ 10 ms", "", f"{started} ms", ""
        yield "the same, from SIGKILL to the next claim", "≤ 2 s", "", f"{killed} ms", ""
        submit = runs["command"]["ratios"]["submit"]
        yield "`actum runs submit` ÷ `actum --version`", "≤ 3", "", submit, ""
        if "items" in runs:
            found = runs["items"]
            yield (
                f"small items per second, {found['items']} of one level, 4 at once",
                "≥ 16",
                "30",
                f"{found['per_second']} ({found['processor_ms_each']} ms of processor time each)",
                "",
            )
    if "ratio" in results.get("egress", {}):
        yield "relay ÷ direct loopback, 1 GiB", "≥ 0.3", "", results["egress"]["ratio"], ""
    if "100000" in results.get("workspace", {}):
        yield from _workspace_bars(results["workspace"])


def _mcp_bars(calls: Mapping[str, Any]) -> Iterator[Row]:
    for server, words in _SERVERS.items():
        for where, name in (
            ("from_the_loop", f"call of {words} ÷ the MCP library alone, from its own loop"),
            ("from_a_thread", "the same, from a thread"),
        ):
            if server in calls:
                found = calls[server][where]["ratios"]
                yield name, "≤ 2", "", found["governed"], found["governed, repeated"]


def _workspace_bars(sizes: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
    """10 changed files in 100,000; whole items at every size, which must not matter."""
    found = sizes["100000"]

    def each(*names: str) -> str:
        return " / ".join(str(found[name]) for name in names) + " ms"

    yield (
        "freeze / delta and hash / commit, 10 changed of 100,000 files",
        "1 / 3 / 8 ms",
        "0.5 / 2 / 6 ms",
        each("freeze, owned", "delta and hash", "commit"),
        "",
    )
    git = each("git freeze (add, write-tree), warm", "git commit after")
    yield "the same by git: freeze / commit", "", "", git, ""
    yield "scan of 100,000 files that others may edit", "", "", each("scan, shared"), ""
    over = round(sizes["100"]["work item, owned"] - sizes["100"]["work item, bare"])
    yield (
        "work item, owned, of 100 files, over its bare command",
        "≤ 60 ms",
        "30 ms",
        f"{over} ms",
        "",
    )
    for name in ("work item, owned", "work item, shared"):
        if name in found:
            sized = " / ".join(str(round(sizes[size][name])) for size in ("100", "10000", "100000"))
            yield f"{name}, of 100 / 10,000 / 100,000 files", "", "", f"{sized} ms", ""


def _transactions(sizes: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    """Every number of changed files at every size of the project."""
    yield "| files in the project | files changed | bare | direct | transaction |"
    yield "|---|---|---|---|---|"
    for size, counts in sizes.items():
        for count, ways in counts.items():
            cells = (f"{ways[way]:.1f} ms" for way in ("bare", "direct", "transaction"))
            yield f"| {int(size):,} | {count} | {' | '.join(cells)} |"


def _sealed_inputs(folders: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Iterator[str]:
    yield "| one input file | folder | live | sealed |"
    yield "|---|---|---|---|"
    for folder, sizes in folders.items():
        for size, ways in sizes.items():
            yield f"| {size} | {folder} | {ways['live']:.1f} ms | {ways['sealed']:.1f} ms |"


def _containers(found: Mapping[str, Any]) -> Iterator[str]:
    from containers import AT_ONCE, COLD, ELSEWHERE, SAME

    if of_its_own := found.get("of_its_own"):
        yield (
            f"The docker runner in a run of its own, at {of_its_own['commit']}: the load before it"
            f" was {of_its_own['load_before']}, other processes used"
            f" {of_its_own['processors_used_by_others']} processors."
        )
        yield ""
    yield "| docker runner | bar | measured | a container waited |"
    yield "|---|---|---|---|"
    starts = found["starts"]
    for name, bar in {COLD: "≤ 0.9", SAME: "≤ 0.05", ELSEWHERE: "", AT_ONCE: ""}.items():
        waited = " of ".join(map(str, starts["hits"].get(name, ())))
        yield f"| {name} ÷ `docker run --rm` | {bar} | {starts['ratios'][name]} | {waited} |"
    stdout = found["stdout_1_gib"]
    grown = f"{stdout['host_memory_growth_mib']} / {stdout['engine_memory_growth_mib']} MiB"
    yield f"| 1 GiB of stdout ÷ `docker run` | ≤ 0.6 | {stdout['ratio']} | |"
    yield f"| the same, growth of memory: host / engine | flat | {grown} | |"


def _images(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| images | bar | measured |"
    yield "|---|---|---|"
    times = f"{found['image']:.1f} ms beside {found['host']:.1f} ms"
    what = "shell, new script each time: in an image ÷ on the host's programs"
    yield f"| {what} | ≤ 1.2 | {found['ratio']} ({times}) |"
    for form, seconds in found["unpack_s"].items():
        yield f"| unpack {found['image_mb']} MB, {form} | ≤ 1.5 s | {seconds} s |"


def write(results: Mapping[str, Any]) -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(_BEGIN)
    PAGE.write_text(before + _BEGIN + table(results) + _END + rest.partition(_END)[2])


if __name__ == "__main__":
    write(json.loads((HERE / "results.json").read_text()))
