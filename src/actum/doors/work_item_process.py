"""The entry point of work items' processes, and of the process that they are cloned from.

`work.item_process` starts it, never a person. `main` imports everything, opens nothing, and clones
itself for each request. A clone reads one order and writes one answer. It enters a namespace of its
own first, because only a process without threads can.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from actum import kernel

_TELLING = threading.Lock()
_DESCRIPTORS = 4
_IDLE_S = 0.02
#: From this many items on, what costs as much as ten of them save is prepared too.
_MANY = 8
#: Imported before the first clone, with everything that they would import for an item. Importing
#: opens no database, key, socket or thread.
_MODULES = (
    *("actum.runtime", "actum.runners.local", "actum.work.work_items", "actum.work.work_records"),
    *("actum.work.agents.tool_socket", "actum.workspace.overlay", "actum.workspace.copying"),
    *("actum.upkeep", "actum.runners.cleanup", "actum.doors.known_failures"),
    *("actum.evidence.recovery", "actum.runners.spawner_start", "actum.sandbox.cgroup_v1"),
    *("actum.sandbox.cgroup_v2", "actum.registry.load", "actum.execution.final_state"),
    *("actum.documents.yaml12", "yaml", "jsonschema_rs", "encodings.ascii"),
    *("cryptography.hazmat.primitives.asymmetric.ed25519", "cryptography.exceptions"),
    *("encodings.unicode_escape", "actum.runners.channel"),
    *("importlib.readers", "importlib.resources.readers"),
    *("actum.workspace.git_names", "actum.registry.coherence", "actum.registry.api_coherence"),
    *("actum.registry.sdk_names",),
)


def main() -> None:
    caller, line = int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    _die_with(caller)
    _set_name("actum-items")
    os.chdir("/")
    import_all()
    gc.collect()
    gc.freeze()  # a collection in a clone would copy all these pages
    clones, ahead = 0, [(1, prepare), (_MANY, prepare_more)]
    while True:
        if ahead and clones >= ahead[0][0] and not select.select([line], [], [], _IDLE_S)[0]:
            ahead.pop(0)[1]()
        packet, descriptors, _flags, _address = socket.recv_fds(line, 64, _DESCRIPTORS)
        if not packet:
            return  # the caller has closed its end
        kernel.before_raw_fork()
        try:
            pid = kernel.clone_sibling()
            if pid == 0:
                _be_an_item(caller, line, descriptors)
        finally:
            kernel.after_raw_fork_in_parent()  # an item never gets here: it exits
        for descriptor in descriptors:
            os.close(descriptor)
        line.send(b"%d" % pid)
        clones += 1


def import_all() -> None:
    for name in _MODULES:
        importlib.import_module(name)


def prepare() -> None:
    """What every clone would compute for itself. It depends on Actum's own code only."""
    from actum import value
    from actum.contract import parse
    from actum.documents import json_schema
    from actum.registry.load import schema_of
    from actum.runners import manifest
    from actum.store import keys
    from actum.work import model
    from actum.work.agents import agent_file, program_agent

    value.prepare_all()
    parse.prepare()
    for schema in (
        *(model.SCHEMA, agent_file.STEPS, agent_file.PROGRAM, program_agent.CALL),
        *(schema_of("tool"), schema_of("adapter")),
    ):
        json_schema.prepare(schema)
    manifest.prepare()
    keys.prepare()
    gc.freeze()


def prepare_more() -> None:
    from actum import value

    value.compile_all()
    gc.freeze()


def _die_with(caller: int) -> None:
    # Without the caller, the answer has no reader; the lock, the view and the tools end with us.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != caller:
        os._exit(1)  # the caller died before the line above


def _set_name(name: str) -> None:
    Path("/proc/self/comm").write_text(name)


def _be_an_item(caller: int, line: socket.socket, descriptors: list[int]) -> NoReturn:
    """The steps of a clone. It shares no descriptor with the process that it was cloned from."""
    code = 1
    try:
        kernel.after_raw_fork()
        _die_with(caller)
        os.setsid()  # the caller handles Ctrl-C
        _set_name("actum-item")
        *streams, source = descriptors
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
            os.close(descriptor)
        line.close()
        os.set_inheritable(source, False)
        code = _exit_code(socket.socket(fileno=source))
    finally:
        os._exit(code)


def _exit_code(source: socket.socket) -> int:
    """As the interpreter would end."""
    try:
        _item(source)
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 -- the last handler of this process
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads, as an exit does
    sys.stderr.flush()
    return code


def _item(source: socket.socket | None = None) -> None:
    """`source`: spawners are cloned from the process at its other end."""
    order: dict[str, Any] = json.loads(sys.stdin.buffer.readline() or b"null")
    if order is None:
        os._exit(1)  # the caller is gone
    from actum.workspace import namespace

    try:
        namespace.enter()
    except OSError as error:
        _answer(
            {
                "fault": f"A work item needs a mount namespace of its own: {error.strerror}.",
                "remedy": "Allow unprivileged user namespaces, or run as root.",
            }
        )
        return
    from actum import settings
    from actum.runtime import Runtime

    try:
        found = settings.load(
            settings.discover(Path(order["root"]), Path(order["home"])), os.environ
        )
        with Runtime(found, pool=False, upkeep=False) as runtime:
            _answer(runtime.work_items.here(order, _tell, source))
    except Exception as error:
        from actum.doors.known_failures import explained

        known = explained(error)
        if known is None:
            raise
        # The caller repeats it, and recovers as after any other death of this process.
        sys.exit(str(known))


def _tell(word: Mapping[str, Any]) -> Any:
    """Report progress, and wait for the answer."""
    with _TELLING:  # tools are called by several threads
        try:
            _answer(word)
            nod = sys.stdin.buffer.readline()
        except OSError:
            nod = b""
        if not nod:
            # The asker is gone. To die here is what SIGKILL would have done a moment later; the
            # next command recovers, and nothing here decides anything on its own.
            os._exit(1)
    return json.loads(nod)


def _answer(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
