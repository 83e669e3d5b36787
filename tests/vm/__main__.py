"""`scripts/vm`: one command under another kernel, from a shell."""

from __future__ import annotations

import sys

from . import qemu, uml

_DEADLINE_S = 600.0


def main() -> int:
    machines = {"uml": uml, "qemu": qemu}
    if len(sys.argv) < 3 or sys.argv[1] not in machines:
        print("usage: scripts/vm uml|qemu COMMAND [ARGUMENT...]", file=sys.stderr)
        return 2
    answer = machines[sys.argv[1]].run(sys.argv[2:], deadline_s=_DEADLINE_S)
    print(answer.output, end="")
    print(f"{sys.argv[1]}: {answer.seconds:.1f} s", file=sys.stderr)
    return answer.code


if __name__ == "__main__":
    raise SystemExit(main())
