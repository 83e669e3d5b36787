"""A process that makes the requested requests and answers with the time of each.

    serve.py bare|governed PROJECT

Reads one request per line, as JSON: kind and number. Writes one answer per line: milliseconds, and
the processor time of the calling thread. PYTHONPATH decides which Actum it is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import traffic


def main(how: str, project: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # no other output gets among the answers
    root = Path(project)
    os.chdir(root)
    with ExitStack() as stack:
        source = ""
        asked: traffic.Bare | traffic.Governed = traffic.Bare(root)
        if how == "governed":
            import actum

            source = str(Path(actum.__file__).parents[1])
            asked = traffic.Governed(root, stack.enter_context(actum.Runtime.open(root)))
        print(json.dumps({"source": source}), file=answers)
        for line in sys.stdin:
            kind, number = json.loads(line)
            print(json.dumps(_answer(asked, root, kind, number)), file=answers)


def _answer(
    asked: traffic.Bare | traffic.Governed, root: Path, kind: str, number: int
) -> dict[str, float | str]:
    try:
        traffic.prepare(root, kind, number)
        processor, began = time.thread_time(), time.perf_counter()
        found = asked.ask(kind, number)
        took, used = time.perf_counter() - began, time.thread_time() - processor
        traffic.require_answer(root, kind, number, found)
    except Exception as error:  # noqa: BLE001  the caller decides what a failure means
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"ms": took * 1000, "caller_cpu_ms": used * 1000}


if __name__ == "__main__":
    main(*sys.argv[1:])
