"""Build cache: the programs that sdk adapters in Go and Rust are compiled to.

A program is stored in `.actum/programs/` under the digest of its sources, its driver and its
compiler, beside its SHA-256 and the id of the execution that compiled it. A file that no longer has
that SHA-256 is compiled again.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from actum.adapters.compiled import LANGUAGES, PROGRAM, program_key
from actum.contract.call import Executable
from actum.contract.canonical import sha256_bytes
from actum.contract.ids import new_id
from actum.contract.limits import CPU_CORES, MAX_CHILDREN, MEMORY_MB, TIMEOUT_MS
from actum.contract.model import (
    SCRATCH,
    ArtifactSpec,
    Contract,
    ExpectedOutputs,
    Inputs,
    Metadata,
    ProcessRequest,
    SandboxRequest,
)
from actum.errors import Refused
from actum.execution.result import Result
from actum.execution.services import Services
from actum.registry.model import COMPILE, AdapterKind, Entry, Retry
from actum.store.whole_file import write_whole
from actum.value import replace

#: Carries out the contract that compiles; ``None`` in a forecast.
Carry = Callable[[Contract], Result]

_guard = threading.Lock()
_locks: dict[str, tuple[threading.Lock, int]] = {}
_PACKAGES = {"go": "golang-go", "rust": "rustc"}
UNUSED_S = 30 * 86_400.0
_SHOWN = 1_500  #: characters of the compiler's output that a refusal repeats
_MEMORY_MB, _TIMEOUT_S = 2_048, 300


def with_program(
    contract: Contract, entry: Entry, services: Services, carry: Carry | None
) -> Entry:
    """The entry with its program, which is compiled now if it is not cached."""
    adapter = entry.adapter
    if adapter.kind is not AdapterKind.SDK or adapter.interface.get("language") not in LANGUAGES:
        return entry
    if contract.inputs.command == COMPILE:
        # The output is a program, not the answer of a function.
        once = Retry(max_attempts=1, backoff_ms=0, retryable_codes=())
        plain = replace(
            entry.adapter, input_transforms=(), output_transforms=(), retry=once, fallback=None
        )
        _toolchain(entry, services)
        return replace(entry, adapter=plain)
    if contract.inputs.command not in entry.adapter.interface["function_mapping"]:
        return entry  # refused later
    folder = Path(services.policy.home) / "programs"
    key = program_key(entry, _toolchain(entry, services))
    with _one_at_a_time(str(folder / key)):
        program = _kept(folder, key)
        if program is None and carry is not None:
            result = carry(_contract(contract, entry))
            program = _compiled(result, entry, services)
            _keep(folder, key, program, result.execution_id)
    # A forecast does not compile, and does not need the program.
    return replace(entry, program=program or b"")


def not_now(contract: Contract) -> Result:
    """For a call that has a slot already: a tool was approved anew while it waited for one."""
    raise Refused(
        "PROGRAM_MISSING",
        f"The tool {contract.tool_id} was approved anew while this call waited, and has to be"
        " compiled first.",
        remedy="Ask again.",
    )


@contextmanager
def _one_at_a_time(key: str) -> Iterator[None]:
    """Other threads that need the same program wait for it instead of compiling it as well."""
    with _guard:
        lock, waiting = _locks.get(key, (threading.Lock(), 0))
        _locks[key] = (lock, waiting + 1)
    try:
        with lock:
            yield
    finally:
        with _guard:
            lock, waiting = _locks[key]
            if waiting == 1:
                del _locks[key]
            else:
                _locks[key] = (lock, waiting - 1)


def _toolchain(entry: Entry, services: Services) -> Executable:
    language = entry.adapter.interface["language"]
    try:
        return services.registry.executable(entry, program=LANGUAGES[language])
    except Refused as missing:
        if missing.code != "EXECUTABLE_MISSING":
            raise
        raise Refused(
            "TOOLCHAIN_MISSING",
            f"Adapter {entry.adapter.adapter_id} is written in {language}, and there is no "
            f"{LANGUAGES[language]} to compile it.",
            remedy=f"Install it: apt-get install {_PACKAGES[language]}; or name its directory in "
            "`path` of tool.yaml.",
        ) from missing


def _contract(asked: Contract, entry: Entry) -> Contract:
    """The contract that compiles: on behalf of the requester, within the tool's ceiling."""
    ceiling = entry.tool.permissions
    return Contract(
        execution_id=new_id(),
        tool_id=entry.tool.tool_id,
        adapter_id=entry.adapter.adapter_id,
        inputs=Inputs(command=COMPILE, working_directory=SCRATCH),
        sandbox=SandboxRequest(
            timeout_ms=min(1_000 * (ceiling.max_duration_s or _TIMEOUT_S), TIMEOUT_MS.most),
            memory_mb=min(ceiling.max_memory_mb or _MEMORY_MB, MEMORY_MB.most),
            cpu_cores=min(ceiling.max_cpu_cores or 2, CPU_CORES.most),
            processes=ProcessRequest(max_children=MAX_CHILDREN.most, allow_fork=True),
        ),
        outputs=ExpectedOutputs(artifacts=(ArtifactSpec(name=PROGRAM, path=PROGRAM),)),
        metadata=Metadata(
            requested_by=asked.metadata.requested_by,
            requested_at=asked.metadata.requested_at,
            purpose=f"compile {entry.adapter.adapter_id} {entry.adapter.version}",
        ),
        session=asked.session,
    )


def _compiled(result: Result, entry: Entry, services: Services) -> bytes:
    found = [] if result.result is None else result.result.artifacts
    made = next((item for item in found if item.path == PROGRAM), None)
    if not result.ok or made is None:
        said = result.result.stderr[-_SHOWN:] if result.result is not None else ""
        reasons = ", ".join(result.reason_codes) or result.outcome.value
        raise Refused(
            "COMPILE_FAILED",
            f"Adapter {entry.adapter.adapter_id} could not be compiled ({reasons}; receipt "
            f"{result.receipt_id}). {said}".strip(),
            remedy="Fix its sources and have the tool approved again.",
        )
    return services.ledger.content(made.blake3)


def _kept(folder: Path, key: str) -> bytes | None:
    try:
        about = json.loads((folder / f"{key}.json").read_bytes())
        program = (folder / key).read_bytes()
        os.utime(folder / key)  # when it was last used, for `remove_unused`
    except (OSError, ValueError):
        return None
    return program if about.get("sha256") == sha256_bytes(program) else None


def remove_unused(
    home: Path, *, unused_s: float = UNUSED_S, dry_run: bool = False
) -> tuple[int, int]:
    """(files, bytes) removed: programs that were not used for `unused_s`."""
    files = freed = 0
    before = time.time() - unused_s
    for about in (home / "programs").glob("*.json"):
        program = about.with_suffix("")
        if not program.exists() or program.stat().st_mtime < before:
            for path in (program, about):
                if path.exists():
                    files, freed = files + 1, freed + path.stat().st_size
                    if not dry_run:
                        path.unlink(missing_ok=True)
    return files, freed


def _keep(folder: Path, key: str, program: bytes, execution_id: str) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    write_whole(folder / key, program, synced=False)
    about = {"sha256": sha256_bytes(program), "execution_id": execution_id}
    write_whole(folder / f"{key}.json", json.dumps(about).encode(), synced=False)
