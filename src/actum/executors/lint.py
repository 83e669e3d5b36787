"""Checks an executor's source before it runs, and names every line that is not pure.

For honest authors: it reports in a second, with a line number, what the sandbox would punish later
with a killed process. It is not a security boundary: code can deceive it.
"""

from __future__ import annotations

import ast

from actum.executors.modules import ALLOWED
from actum.executors.swallowing import swallowed
from actum.value import value

_PACKAGES = frozenset(name.split(".")[0] for name in ALLOWED) | {"__future__"}

_FORBIDDEN_CALLS = {
    "open": "reads or writes a file",
    "input": "reads from a terminal",
    "print": "writes to a terminal",
    "eval": "runs text as code",
    "exec": "runs text as code",
    "compile": "makes code from text",
    "__import__": "imports at run time",
    "breakpoint": "waits for a person",
    "globals": "reaches the module's own state",
    "vars": "reaches into objects behind their back",
    "id": "depends on where memory was given out",
    "hash": "depends on the hash seed of the process",
    "exit": "ends the process",
    "quit": "ends the process",
}
_FORBIDDEN_ATTRIBUTES = {
    "now": "reads the clock",
    "utcnow": "reads the clock",
    "today": "reads the clock",
    "environ": "reads the environment",
    "getenv": "reads the environment",
    "system": "starts a process",
    "popen": "starts a process",
}
_INTERNALS = frozenset(
    {
        *("__subclasses__", "__globals__", "__builtins__", "__code__", "__mro__", "__bases__"),
        *("__loader__", "__spec__", "__closure__", "__dict__", "__reduce__", "__reduce_ex__"),
        *("f_globals", "f_back", "f_locals", "gi_frame", "tb_frame", "cr_frame"),
    }
)
_DECLARED = frozenset({"executor_id", "version", "capabilities", "limits"})
_MUTATORS = frozenset(
    {"append", "extend", "insert", "pop", "popitem", "remove", "clear", "update", "setdefault"}
    | {"sort", "reverse"}
)


@value(kw_only=False, order=True)
class Objection:
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.rule}: {self.message}"


def lint(source: bytes) -> tuple[Objection, ...]:
    """Every objection, in the order of the lines."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", 0) or 0
        return (Objection(line, "syntax", "this is not Python that can be read"),)
    reader = _Reader()
    reader.visit(tree)
    for node, rule, message in swallowed(tree):
        reader.object_to(node, rule, message)
    return tuple(sorted(set(reader.found)))


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[Objection] = []
        self._modules: set[str] = set()  # names of imported modules
        self._requests: list[str] = []  # the name of the request in `execute`

    def object_to(self, node: ast.AST, rule: str, message: str) -> None:
        self.found.append(Objection(getattr(node, "lineno", 0), rule, message))

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            self._check_module(node, name.name)
            self._modules.add((name.asname or name.name).split(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            self.object_to(node, "import", "an executor is one file; it has no neighbours")
        else:
            self._check_module(node, node.module or "")

    def _check_module(self, node: ast.AST, name: str) -> None:
        if name.split(".")[0] not in _PACKAGES:
            allowed = ", ".join(sorted(_PACKAGES - {"__future__"}))
            self.object_to(node, "import", f"{name} is not a pure module (permitted: {allowed})")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _FORBIDDEN_CALLS:
            self.object_to(node, "call", f"{node.func.id}() {_FORBIDDEN_CALLS[node.func.id]}")
        if isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATORS:
            self._check_owner(node, node.func.value)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in _FORBIDDEN_ATTRIBUTES:
            self.object_to(node, "ambient", f".{node.attr} {_FORBIDDEN_ATTRIBUTES[node.attr]}")
        if node.attr in _INTERNALS:
            self.object_to(node, "internals", f".{node.attr} reaches behind the language")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _INTERNALS:
            self.object_to(node, "internals", f"{node.id} reaches behind the language")

    def visit_Global(self, node: ast.Global) -> None:
        self.object_to(node, "state", f"global {', '.join(node.names)}: a call leaves no trace")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        names = [argument.arg for argument in node.args.args]
        is_execute = node.name == "execute" and len(names) > 1
        self._requests += names[1:2] if is_execute else []
        self.generic_visit(node)
        if is_execute:
            self._requests.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.object_to(node, "async", "nothing here can be waited for")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._check_targets(node.targets)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._check_targets([node.target])
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._check_targets(node.targets)
        self.generic_visit(node)

    def _check_targets(self, targets: list[ast.expr]) -> None:
        for target in targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                self._check_targets(target.elts)
            elif isinstance(target, ast.Subscript):
                self._check_owner(target, target.value)
            elif isinstance(target, ast.Attribute):
                if target.attr in _DECLARED:
                    self.object_to(target, "immutable", f"{target.attr} is fixed once declared")
                self._check_owner(target, target.value)

    def _check_owner(self, node: ast.AST, owner: ast.expr) -> None:
        """Object to a change of something that is not the executor's own."""
        chain = []
        while isinstance(owner, (ast.Attribute, ast.Subscript)):
            if isinstance(owner, ast.Attribute):
                chain.append(owner.attr)
            owner = owner.value
        if not isinstance(owner, ast.Name):
            return
        if owner.id in self._modules:
            self.object_to(node, "state", f"{owner.id} is shared; it must not be changed")
        elif owner.id in self._requests:
            self.object_to(node, "state", f"{owner.id} is the caller's; it must not be changed")
        elif _DECLARED & set(chain):
            self.object_to(node, "immutable", f"{' and '.join(_DECLARED & set(chain))} is fixed")
