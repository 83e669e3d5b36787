"""`make bench`: everything measured in one run, as ratios, into bench/results.json."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
PARTS = ("execution", "executors", "egress", "disclosure", "adapters", "mcp_calls", "workspace")


def main() -> None:
    sys.path.insert(0, str(HERE))
    results = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),  # above 0.5 somebody else was at work
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            cwd=HERE,
            check=True,
        ).stdout.strip(),
    }
    for part in PARTS:
        if (HERE / f"{part}.py").exists():
            print(f"measuring {part} …", flush=True)
            began = time.monotonic()
            results[part] = importlib.import_module(part).measure()
            print(f"  {time.monotonic() - began:.0f} s", flush=True)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))
    print("drawn:", ", ".join(importlib.import_module("plots").draw(results)))
    importlib.import_module("report").write(results)


if __name__ == "__main__":
    main()
