"""`make bench`: everything measured in one run, as ratios, into bench/results.json."""

from __future__ import annotations

import importlib
import json
import platform
import subprocess
import sys
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
            results[part] = importlib.import_module(part).measure()
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
