"""Inside the sandbox: starts the agent's command, and relays its tool calls to the host.

Runs on the sandbox's own Python and uses only the standard library. Every process inside can use
it, and could write to the host in its place: it relays requests, and the host checks each of them.

Lines to the host:  {"hello": 1} once · {"id", "asks"} · {"ended": exit code}
Lines from it:      {"command", "item", "tool"} once · {"id", "answer"}
Lines on the socket:  {"ask": "tools"} · {"ask": "call", "call": {...}}, each answered by one line
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time

LINE_BYTES = 2_000_000


def main():
    say({"hello": 1})
    order = json.loads(sys.stdin.buffer.readline())
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, args=(listener,), daemon=True).start()
    threading.Thread(target=answers, daemon=True).start()
    folder = "/tmp/actum"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/actum-tool", "w") as file:
        file.write(f'#!/bin/sh\nexec {sys.executable} -s {order["tool"]} "$@"\n')
    os.chmod(f"{folder}/actum-tool", 0o755)
    with open(f"{folder}/item.json", "w") as file:
        json.dump(order["item"], file)
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "ACTUM_TOOLS": "127.0.0.1:%d" % listener.getsockname()[1],
        "ACTUM_ITEM": f"{folder}/item.json",
    }
    try:
        # Its output is for people: only this process writes to the host.
        code = subprocess.run(
            order["command"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            check=False,
        ).returncode
    except OSError as error:
        print(f"{order['command'][0]}: {error.strerror}", file=sys.stderr)
        code = 127
    say({"ended": code})


SAYING = threading.Lock()
WAITING = {}
NUMBERS = iter(range(1, 1 << 62))


def say(document):
    with SAYING:
        os.write(1, json.dumps(document).encode() + b"\n")


def accept(listener):
    while True:
        try:
            connection, _address = listener.accept()
        except OSError:  # too many open descriptors: waiting clients may connect later
            time.sleep(0.1)
            continue
        try:
            threading.Thread(target=serve, args=(connection,), daemon=True).start()
        except RuntimeError:  # too many threads: the connection is closed
            connection.close()


def serve(connection):
    """Answer each line with one line, until the client closes."""
    with connection, connection.makefile("rwb") as lines:
        while True:
            line = lines.readline(LINE_BYTES)
            if not line.endswith(b"\n"):
                return
            try:
                asked = json.loads(line)
            except (ValueError, RecursionError):
                return
            if not isinstance(asked, dict):
                return
            number, slot = next(NUMBERS), [threading.Event(), None]
            WAITING[number] = slot
            say({"id": number, "asks": asked})
            slot[0].wait()
            lines.write(json.dumps(slot[1]).encode() + b"\n")
            lines.flush()


def answers():
    for line in sys.stdin.buffer:
        answer = json.loads(line)
        slot = WAITING.pop(answer["id"], None)
        if slot is not None:
            slot[1] = answer["answer"]
            slot[0].set()


if __name__ == "__main__":
    main()
