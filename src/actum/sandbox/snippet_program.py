"""Runs one Python snippet inside a sandbox. This file is the program; the snippet is its input.

Started as `python3 snippet.py [session:] [@directory | module …]`: it imports the named modules,
reads one order from stdin until end-of-file, and only then has a snippet. So it can be started and
confined and do its imports before there is a request; with `session:`, `session.py` takes over.
An order is JSON: `code`, `params` (names for the snippet), and `files` (name -> base64, written to
the working directory). Large files follow the JSON, see `read_order`. The value of the last
expression, or of a `return`, goes to `value.json` among the artifacts, unless it is None; an
exception goes there too, as data. What the snippet wrote in its own working directory goes to the
folder `cwd` among the artifacts.

Once the order is read, everything here is hostile, and so is all later output of this program.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import os
import stat
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, NoReturn

_NAME = "<snippet>"
_SESSION = "session:"  #: the first argument, for a session of several snippets
_ENTRY = "__snippet__"
_VALUE = "__value__"
_SCALARS = frozenset({int, float, bool})
_SHORT = 4_096
_FRAME = b"actum-order "  #: as in `contract.snippet_order`
#: The longest value; the most that the host collects is 10 MiB, together with files.
_VALUE_LETTERS = 8 << 20
_FOLDER = os.path.dirname(os.path.abspath(__file__))
beside: dict[str, Any] = {}  #: programs beside this one, by name
_SCRATCH = "/tmp"
_watched: list[Any] = []  #: the watcher, or None until it is needed; empty: nothing is watched
#: The most that the host collects: bytes, and files with a reserve.
_COLLECTED_BYTES, _COLLECTED_FILES = 10 << 20, 250
_VALUE_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
_read_order = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(allow_nan=False).encode


def main() -> None:
    # By lines, so that the host receives a print when it is made.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if sys.argv[1:2] == [_SESSION]:
        import session  # type: ignore[import-not-found]  # beside this file, inside

        session.main(sys.argv[2:], _imports, sys.modules["__main__"])
    waits = stat.S_ISFIFO(os.fstat(0).st_mode)  # the request comes later
    known, began = set(sys.modules), _file_clock_ns()
    _imports(sys.argv[1:])
    if waits:
        _rehearse()
    watch()
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    # Stdin is read to its end and has no writer: for the snippet it is empty.
    text = _read_all()
    if waits and _is_stale(sys.modules.keys() - known, began):
        _start_again(text)
    try:
        order = read_order(text)
    except (ValueError, IndexError, KeyError, AttributeError):
        # Only the library writes such a request: this was called as a tool for programs.
        sys.stderr.write(_NOT_AN_ORDER)
        sys.exit(2)
    del text
    _leave(*_carry_out(order, space))


_NOT_AN_ORDER = (
    "The tool snippet is for the library (Runtime.python), which writes its stdin."
    " Run a program with the tool python: echo 'print(1)' | actum exec python\n"
)


def read_order(text: bytes) -> dict[str, Any]:
    """An order as JSON, or as a line with its lengths, JSON, and the content of files."""
    order: dict[str, Any]
    if not text.startswith(_FRAME):
        order, _end = _read_order(text.decode())
        return order
    head, _, _rest = text[:_SHORT].partition(b"\n")
    start, length = len(head) + 1, int(head.split()[1])
    order, _end = _read_order(text[start : start + length].decode())
    content = memoryview(text)[start + length :]
    order["files"] = {}
    for name, size in order["attached"].items():
        order["files"][name], content = content[:size], content[size:]
    return order


def _file_clock_ns() -> int:
    """The clock of file times. A contract may have fixed the others."""
    file = os.memfd_create("clock", os.MFD_CLOEXEC)
    now = os.fstat(file).st_ctime_ns
    os.close(file)
    return now


def _is_stale(modules: set[str], began: int) -> bool:
    """Whether one of these modules may have changed on the disk since it was imported.

    By ctime, which no tool can set. Folders too: a file or folder that replaces the imported one
    keeps its own times, but changes those of its parent.
    """
    own = f"{os.path.dirname(os.__file__)}/"
    paths: set[str] = set()
    for name in modules:
        path = getattr(sys.modules[name], "__file__", None)
        if not isinstance(path, str) or path.startswith(own):
            continue
        while path not in paths and len(path) > 1:
            paths.add(path)
            if path in sys.path:
                break
            path = os.path.dirname(path)
    try:
        return any(os.stat(path).st_ctime_ns >= began for path in paths)
    except OSError:
        return True


def _start_again(order: bytes) -> NoReturn:
    """Execute a fresh interpreter for this order, which imports the current files."""
    file = os.memfd_create("order", os.MFD_CLOEXEC)
    left = order
    while left:
        left = left[os.write(file, left) :]
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 -- the same program


def _rehearse() -> None:
    """Run an order once before there is a request: the first use of memory is slow, even more so
    after a fork, because a write copies the page."""
    for code in ("str(print)", "str(print)\nNone"):
        order, _end = _read_order(_encode({"code": code, "params": {}, "files": {}}))
        _carry_out(order, {"__name__": "__main__", "__builtins__": __builtins__})


def _imports(wanted: list[str]) -> None:
    sys.path[0] = ""  # imports start at the working directory, as with `python3 -`
    for name in wanted:
        if name.startswith("@"):
            # As in a virtual environment: after the standard library, before the system's packages.
            places = [n for n, path in enumerate(sys.path) if path.endswith("-packages")]
            sys.path.insert(places[0] if places else len(sys.path), name[1:])
        else:
            __import__(name)
    sys.argv = [_NAME]


def _carry_out(order: dict[str, Any], space: dict[str, Any]) -> tuple[int, str]:
    """(exit code, answer as JSON) of one order; its names stay in `space` for the next one."""
    try:
        for name, content in order["files"].items():
            _put(name, base64.b64decode(content) if isinstance(content, str) else content)
        order["files"] = {}  # their memory is the snippet's
        space.update(order["params"])
        return 0, _answer(_run(order["code"], space))
    except SystemExit as leaving:
        return _exit_code(leaving), ""
    except BaseException as error:  # noqa: BLE001 -- any exception of a snippet is its result
        return 1, _encode({"error": _described(error, order["code"])})


def _read_all() -> bytes:
    parts = []
    while part := os.read(0, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _put(name: str, content: bytes | memoryview) -> None:
    parent = os.path.dirname(name)
    if parent:
        os.makedirs(parent, exist_ok=True)
    with open(name, "wb") as file:
        file.write(content)
    if _watched:
        watcher().know(name)


def watch() -> None:
    """Look for new files from now on, if the working directory ends with the sandbox."""
    if os.getcwd() == _SCRATCH:
        _watched.append(None)
        if os.listdir(_SCRATCH):  # files of imported modules
            watcher().know_all()


def watcher() -> Any:
    if _watched[0] is None:
        _watched[0] = _beside("working_files").WorkingFiles()
    return _watched[0]


def has_new_files() -> bool:
    return bool(_watched and (_watched[0] is not None or os.listdir(_SCRATCH)))


def with_left_out(answer: str) -> str:
    """The answer with the files that were not collected."""
    if not watcher().left_out:
        return answer
    field = f'"left_out": {_encode(watcher().left_out)}}}'
    return f"{answer[:-1]}, {field}" if answer else f"{{{field}"


def _run(source: str, space: dict[str, Any]) -> Any:
    """Execute; returns the value of the last expression or of a `return` outside functions."""
    expression = _expression(source)
    if expression is not None:
        return eval(expression, space)  # noqa: S307 -- the purpose of the sandbox
    tree = ast.parse(source, _NAME)
    body = tree.body
    # Most snippets do not contain the word, so most trees are not walked.
    if "return" in source and any(_returns(statement) for statement in body):
        wrapper = ast.parse(f"def {_ENTRY}(): pass").body[0]
        assert isinstance(wrapper, ast.FunctionDef)  # noqa: S101
        if isinstance(body[-1], ast.Expr):
            body[-1] = ast.copy_location(ast.Return(body[-1].value), body[-1])
        wrapper.body, tree.body = body, [wrapper]
        exec(compile(tree, _NAME, "exec", dont_inherit=True), space)  # noqa: S102
        return space[_ENTRY]()
    if body and isinstance(body[-1], ast.Expr):
        last = body[-1]
        target = ast.copy_location(ast.Name(_VALUE, ast.Store()), last)
        body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
    exec(compile(tree, _NAME, "exec", dont_inherit=True), space)  # noqa: S102
    return space.pop(_VALUE, None)


def _expression(source: str) -> CodeType | None:
    """Compile a snippet of one line that is an expression: it needs no tree."""
    if "\n" in source or ";" in source:
        return None
    try:
        return compile(source, _NAME, "eval", dont_inherit=True)
    except SyntaxError:
        return None


def _returns(node: ast.AST) -> bool:
    if isinstance(node, ast.Return):
        return True
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    if isinstance(node, inner):
        return False
    return any(_returns(child) for child in ast.iter_child_nodes(node))


def _answer(value: Any) -> str:
    if value is None:
        return ""
    # Most values are numbers and short texts, which need no conversion.
    if type(value) in _SCALARS or (type(value) is str and len(value) < _SHORT):
        with contextlib.suppress(ValueError):  # a number that JSON does not have
            return _encode({"value": value})
    text: str = _beside("value").encoded(value, _VALUE_LETTERS)
    return f'{{"value": {text}}}'


def _beside(name: str) -> Any:
    """A program beside this one. The zygote imports them ahead (`learn`)."""
    found = beside.get(name)
    if found is None:
        # By its path: sys.path is the snippet's, and may have a module of the same name.
        found = beside[name] = type(sys)(f"actum_{name}")
        path = f"{_FOLDER}/{name}.py"
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec", dont_inherit=True), found.__dict__)  # noqa: S102
    return found


def _described(error: BaseException, source: str) -> dict[str, Any]:
    """The exception as data and, as Python does, on stderr; without the frames of this program."""
    import linecache

    linecache.cache[_NAME] = (len(source), None, source.splitlines(keepends=True), _NAME)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != _NAME:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    sys.stderr.write(text)
    return {"type": type(error).__name__, "message": str(error), "traceback": text}


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return int(leaving.code or 0) & 0xFF
    sys.stderr.write(f"{leaving.code}\n")
    return 1


def _leave(code: int, answer: str) -> None:
    """Exit like an interpreter, but without freeing its objects."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    folder = os.environ.get("ACTUM_ARTIFACTS", "/artifacts")
    if has_new_files():
        _collect(folder, len(answer))
        answer = with_left_out(answer)
    if answer:
        file = os.open(f"{folder}/value.json", _VALUE_FILE, 0o666)
        left = answer.encode()
        while left:
            left = left[os.write(file, left) :]
        os.close(file)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _collect(folder: str, reserved: int) -> None:
    """Copy what the snippet wrote in its working directory to the artifacts."""
    used = os.statvfs(folder)
    most_bytes = _COLLECTED_BYTES - (used.f_blocks - used.f_bfree) * used.f_frsize
    most_files = _COLLECTED_FILES - (used.f_files - used.f_ffree)
    # The list of files that do not fit is part of the answer.
    watcher().copy_to(f"{folder}/cwd", most_bytes - reserved - _SHORT * 16, most_files)


if __name__ == "__main__":
    main()
