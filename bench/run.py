"""`make bench`: everything measured in one run, as ratios, into bench/results.json."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PARTS = (
    "requests_that_differ",
    "caches",
    "execution",
    "calls",
    "executors",
    "egress",
    "disclosure",
    "adapters",
    "mcp_calls",
    "workspace",
    "transactions",
    "sealed_inputs",
    "durable_runs",
    "containers",
    "images",
)
#: Without these there is no page to write; the others fill a row or leave it out.
_PUBLISHED = PARTS[:3]


def main() -> None:
    sys.path.insert(0, str(HERE))
    import checkout
    import machine

    asked = _arguments()
    if asked.against:
        os.environ["ACTUM_BENCH_AGAINST"] = asked.against
    # An installed package has its bytecode; without it, each process compiles all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    results: dict[str, Any] = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "commit": checkout.short("HEAD"),
        "uncommitted": checkout.uncommitted(),
        "parts": {},
    }
    failed = []
    for part in asked.parts or PARTS:
        print(f"measuring {part} …", flush=True)
        watch = machine.Watch()
        try:
            results[part] = importlib.import_module(part).measure()
        except Exception as error:  # noqa: BLE001  the other parts are still measured; exit code 1
            traceback.print_exc()
            results[part] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            failed.append(part)
        os.chdir(HERE)
        results["parts"][part] = {
            "seconds": round(watch.seconds),
            "processors_used_by_others": round(watch.processors_used_by_others(), 2),
        }
        print(f"  {results['parts'][part]}", flush=True)
    text = json.dumps(results, indent=1)
    print(text)
    if not asked.parts:  # one file holds one run
        (HERE / "results.json").write_text(text + "\n")
        if not set(_PUBLISHED) & set(failed):
            print("drawn:", ", ".join(importlib.import_module("plots").draw(results)))
            importlib.import_module("report").write(results)
    sys.exit(f"not measured: {', '.join(failed)}" if failed else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="measure this version beside ours")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    return parser.parse_args()


if __name__ == "__main__":
    main()
