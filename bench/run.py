"""`make bench`: everything measured in one run, as ratios, into bench/results.json."""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PARTS = ("execution", "executors", "egress", "disclosure", "adapters", "mcp_calls", "workspace")


def main() -> None:
    sys.path.insert(0, str(HERE))
    results: dict[str, Any] = {
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
    failed = []
    for part in sys.argv[1:] or PARTS:
        print(f"measuring {part} …", flush=True)
        began = time.monotonic()
        try:
            results[part] = importlib.import_module(part).measure()
        except Exception as error:  # noqa: BLE001  the other figures are worth having; we exit with 1
            traceback.print_exc()
            results[part] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            failed.append(part)
        os.chdir(HERE)
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))
    if "failed" not in results.get("execution", {"failed": "not asked for"}):
        print("drawn:", ", ".join(importlib.import_module("plots").draw(results)))
        importlib.import_module("report").write(results)
    sys.exit(f"not measured: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
