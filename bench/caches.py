"""How often each cache has the answer: on requests that differ, and on requests that repeat.

The kinds of `traffic`, and those below that reach other caches: 25 requests of each kind in turn.
Each traffic has its own process and project. The product counts nothing for this; its functions
are wrapped in the process of the measurement. Only the thread that makes the request counts, so
that the work of background threads is no hit and no miss.

`CACHES` lists the caches that are written by hand. Those of `functools` are found by inspection. A
function without parameters and a variable that holds one value are left out.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import traffic

REQUESTS = 25  #: of each kind
_PAUSE_S = 0.02
_EXAMPLES = Path(__file__).parent.parent / "examples"

#: Beside the kinds of `traffic`: other differences from one request to the next.
MORE_KINDS: Mapping[str, str] = {
    "deterministic": "shell at level D2, a new script on stdin",
    "mcp": "an MCP server, a new note",
    "package": "a function of a Python package, a new text",
    "compiled": "a function in Go, a new text",
    "executor": "a pure executor, a new payload",
    "opened": "a project opened anew, a new script on stdin",
    "search": "a search for adapters, a new word",
    "direct": "shell in a project of 20 folders that writes directly, a new script on stdin",
    "service": "an HTTP service that wants an access token, another resource",
}


@dataclass(frozen=True)
class Cache:
    """A cache, by the function that looks it up.

    It is a miss if that function calls `missed`; without one, if it returns ``None``.
    """

    name: str
    asked: str  #: module:name
    missed: str | None = None


CACHES = (
    Cache(
        "decisions",
        "actum.execution.decision_cache:DecisionCache.find",
    ),
    Cache(
        "prepared sandboxes",
        "actum.sandbox.spawner_client:Spawner._take",
        "actum.sandbox.spawner_client:Spawner._await_member",
    ),
    Cache(
        "interpreters started ahead",
        "actum.runners.warm:WarmInterpreters.take",
    ),
    Cache(
        "kept MCP servers",
        "actum.execution.mcp_runner:McpRunner._reach",
        "actum.execution.mcp_runner:McpRunner._opened",
    ),
    Cache(
        "results (level D2)",
        "actum.execution.result_cache:ResultCache.get",
    ),
    Cache(
        "compiled programs (Go, Rust)",
        "actum.execution.build_cache:_kept",
    ),
    Cache(
        "registry entries",
        "actum.registry.registry:Registry.entry",
        "actum.registry.registry:Registry._pinned",
    ),
    Cache(
        "names of tools",
        "actum.registry.registry:Registry.recall",
        "actum.registry.registry:Registry._recall",
    ),
    Cache(
        "tools.lock as read",
        "actum.registry.registry:Registry.lock",
        "actum.registry.registry:lock_bytes",
    ),
    Cache(
        "tool folders as read",
        "actum.registry.digest:SnapshotCache.read",
        "actum.registry.digest:read_folder",
    ),
    Cache(
        "whole tools, in memory",
        "actum.registry.registry:Registry._load_from",
        "actum.registry.registry:load_snapshot",
    ),
    Cache(
        "disclosure level 0, on disk",
        "actum.registry.disk_cache:DiskCache.card",
    ),
    Cache(
        "disclosure level 1, on disk",
        "actum.registry.disk_cache:DiskCache.summary",
    ),
    Cache(
        "disclosure level 2, on disk",
        "actum.registry.disk_cache:DiskCache.document",
    ),
    Cache(
        "digests of executables",
        "actum.registry.executable:Executables.find",
        "actum.registry.executable:sha256_file",
    ),
    Cache(
        "compiled JSON Schemas",
        "actum.documents.json_schema:_validator",
        "actum.documents.json_schema:_exact",
    ),
    Cache(
        "code of pure executors",
        "actum.executors.action_pipeline:Pipeline._start",
        "actum.executors.runs:compile_source",
    ),
    Cache(
        "processes of pure executors, forked ahead",
        "actum.executors.pool:Pool.prepare",
    ),
    Cache(
        "file systems that take an overlay",
        "actum.runners.local:LocalRunner.takes_overlay",
        "actum.runners.local:takes_marks",
    ),
    Cache(
        "folders below a folder that is written directly",
        "actum.runners.folder_index:FolderIndex._folder",
        "actum.runners.folder_index:FolderIndex._read",
    ),
    Cache(
        "access tokens",
        "actum.secrets.tokens:Tokens.get",
    ),
)


def measure(requests: int = REQUESTS) -> dict[str, Any]:
    """Cache -> traffic -> kind -> [hits, asked]."""
    found: dict[str, dict[str, Any]] = {}
    for how in ("differ", "repeated"):
        done = subprocess.run(
            [sys.executable, __file__, how, str(requests)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd="/",
        )
        for name, kinds in json.loads(done.stdout).items():
            found.setdefault(name, {})[how] = kinds
    return {
        "requests_of_each_kind": requests,
        "labels": dict(MORE_KINDS),
        "caches": {name: found.get(name, {}) for name in [*(c.name for c in CACHES), *found]},
    }


class Counts:
    """Hits and lookups by cache and kind of request."""

    def __init__(self) -> None:
        self.kind: str | None = None  #: of the request that is being made
        self._caller = threading.get_ident()
        self._counts: dict[str, dict[str, list[int]]] = {}

    def add(self, name: str, hits: int, asked: int) -> None:
        if self.kind is not None and asked:
            row = self._counts.setdefault(name, {}).setdefault(self.kind, [0, 0])
            row[0] += hits
            row[1] += asked

    def table(self) -> dict[str, dict[str, list[int]]]:
        return self._counts

    def wrap(self, cache: Cache) -> None:
        owner, attribute = located(cache.asked)
        original = getattr(owner, attribute)
        running: list[bool] = []  #: of the calls that are being made: whether they missed

        @functools.wraps(original)
        def asked(*arguments: Any, **words: Any) -> Any:
            if threading.get_ident() != self._caller:
                return original(*arguments, **words)
            running.append(False)
            try:
                answer = original(*arguments, **words)
            finally:
                missed = running.pop()
            if cache.missed is None:
                missed = answer is None
            self.add(cache.name, int(not missed), 1)
            return answer

        setattr(owner, attribute, asked)
        if cache.missed is not None:
            self._wrap_miss(cache.missed, running)

    def _wrap_miss(self, location: str, running: list[bool]) -> None:
        owner, attribute = located(location)
        original = getattr(owner, attribute)

        @functools.wraps(original)
        def missed(*arguments: Any, **words: Any) -> Any:
            if running and threading.get_ident() == self._caller:
                running[-1] = True
            return original(*arguments, **words)

        setattr(owner, attribute, missed)


def located(location: str) -> tuple[Any, str]:
    """The module or class that holds a function, and the function's name there."""
    module, _, path = location.partition(":")
    *owners, attribute = path.split(".")
    owner: Any = importlib.import_module(module)
    for name in owners:
        owner = getattr(owner, name)
    getattr(owner, attribute)
    return owner, attribute


def memoised() -> dict[str, Any]:
    """The functions of Actum that `functools` caches, by location."""
    found = {}
    for module in [each for name, each in sys.modules.items() if name.startswith("actum.")]:
        for name, member in vars(module).items():
            mine = getattr(member, "__module__", None) == module.__name__
            if mine and hasattr(member, "cache_info") and inspect.signature(member).parameters:
                found[f"`{module.__name__}.{name}`"] = member
    return found


def _count(how: str, requests: int) -> dict[str, dict[str, list[int]]]:
    from actum import Runtime

    counts = Counts()
    for cache in CACHES:
        counts.wrap(cache)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="actum-bench-"))
        root = _project(Path(folder, "project"))
        os.chdir(root)
        runtime = stack.enter_context(Runtime.open(root))
        asked = _kinds(root, runtime)
        asked["direct"] = _direct(Path(folder, "direct"), stack)
        asked["service"] = _service(Path(folder, "service"), stack)
        numbers = itertools.count(1) if how == "differ" else itertools.repeat(traffic.REPEATED)
        for number in itertools.islice(numbers, requests):
            for kind, ask in asked.items():
                traffic.prepare(root, kind, number)
                with _request(counts, kind):
                    ask(number)
                time.sleep(_PAUSE_S)
    return counts.table()


@contextmanager
def _request(counts: Counts, kind: str) -> Iterator[None]:
    """One request of a kind. Meanwhile, the caches of `functools` count for it."""
    before = {name: each.cache_info() for name, each in memoised().items()}
    counts.kind = kind
    yield
    for name, each in memoised().items():
        since = before.get(name, (0, 0))
        now = each.cache_info()
        hits, misses = now.hits - since[0], now.misses - since[1]
        counts.add(name, hits, hits + misses)
    counts.kind = None


def _project(root: Path) -> Path:
    from actum.contract.model import RunnerKind
    from actum.project import create
    from actum.registry.approval_workflow import approve
    from actum.store.keys import Keyring

    create(root, RunnerKind.LOCAL, by="user:bench", date="2026-11-15")
    keyring = Keyring.open(root / ".actum")
    for example in ("mcp/notes", "sdk/stats-python", "sdk/stats-go"):
        name = Path(example).name
        shutil.copytree(_EXAMPLES / example, root / "tools" / name)
        approve(root, keyring, name, by="user:bench", evidence="bench", date="2026-11-15")
    return root


def _kinds(root: Path, runtime: Any) -> dict[str, Callable[[int], object]]:
    from actum import Runtime
    from actum.executors.model import ActionRequest

    governed = traffic.Governed(root, runtime)

    def opened(number: int) -> None:
        with Runtime.open(root, pool=False) as another:
            another.exec("shell", stdin=f"echo opened{number}").check()

    def deterministic(number: int) -> None:
        fields = {"determinism": "D2", "sandbox.filesystem.write": []}
        runtime.exec("shell", stdin=f"echo deterministic{number}", set=fields).check()

    def function(tool: str) -> Callable[[int], object]:
        return lambda number: runtime.exec(
            f"{tool}:words", parameters={"text": f"text {number}"}
        ).check()

    def note(number: int) -> None:
        written = {"title": f"note {number}", "text": "two bottles"}
        runtime.exec("notes:remember", parameters=written).check()

    def act(number: int) -> None:
        result = runtime.act(ActionRequest(action="process", payload={"text": f"text {number}"}))
        assert runtime.act_value(result) == f"TEXT {number}", result

    found: dict[str, Callable[[int], object]] = {
        kind: functools.partial(governed.ask, kind) for kind in traffic.KINDS
    }
    found |= {
        "deterministic": deterministic,
        "mcp": note,
        "package": function("stats-python"),
        "executor": act,
        "opened": opened,
        "search": lambda number: runtime.discovery.search([f"word{number}"]),
    }
    if shutil.which("go"):
        found["compiled"] = function("stats-go")
    return found


def _direct(root: Path, stack: ExitStack) -> Callable[[int], object]:
    import transactions

    for number in range(20):
        (root / f"d{number}").mkdir(parents=True)
    runtime = stack.enter_context(transactions.opened(root, "direct"))
    return lambda number: runtime.exec("shell", stdin=f"echo {number} > file", cwd=root).check()


def _service(folder: Path, stack: ExitStack) -> Callable[[int], object]:
    """The service that the tests use, on loopback."""
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from common.certificates import authority
    from integration.rest import service as rest

    def answer(request: rest.Request) -> rest.Reply:
        if request.host == "login.example.com":
            return rest.said({"access_token": "a-token-of-the-bench", "expires_in": 3_600})
        return rest.said({"data": {"path": request.path}})

    def with_token(tool: dict[str, Any], adapter: dict[str, Any]) -> None:
        auth = {"token_url": "https://login.example.com/token", "client_id": "bench"}
        adapter["interface"]["api"] |= {"auth_method": "oauth", "auth": auth}
        hosts = ["api.example.com", "login.example.com"]
        tool["scope"]["hosts"] = adapter["sandbox_override"]["network"]["allow"] = hosts

    folder.mkdir()
    os.environ["TEST_REST_TOKEN"] = rest.TOKEN
    ca_file, context = authority(folder, rest.NAMES)
    served = stack.enter_context(rest.serving(context))
    served.answer = answer
    project = rest.Project(folder, served, ca_file, change=with_token)
    stack.callback(project.close)
    return lambda number: project.call("get_resource", parameters={"id": str(number)}).check()


if __name__ == "__main__":
    if sys.argv[1] in ("differ", "repeated"):
        print(json.dumps(_count(sys.argv[1], int(sys.argv[2]))))
    else:
        print(json.dumps(measure(int(sys.argv[1])), indent=1))
