"""Finds code of an executor that can swallow an exception that it does not name.

A part of the lint, and like it no security boundary. A name counts as an exception's own only where
the file itself settles that: what cannot be resolved is an objection.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterable, Iterator

#: (node, rule, message)
Found = tuple[ast.AST, str, str]

_BLANKET = frozenset({"Exception", "BaseException"})
_SPECIFIC = {
    name
    for name, each in vars(builtins).items()
    if isinstance(each, type) and issubclass(each, BaseException)
} - _BLANKET
_EXITS = frozenset({"__exit__", "__aexit__"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def swallowed(tree: ast.AST) -> Iterator[Found]:
    """Every handler, `finally` and context manager that can end an unexpected exception."""
    names = _Names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            yield from _handler(node, names)
        elif isinstance(node, (ast.Try, ast.TryStar)):
            for leaves in _leaving(node.finalbody):
                message = "it ends an exception that is being raised; let the block run to its end"
                yield leaves, "leaving finally", message
        else:
            yield from _context_manager(node)


def _handler(node: ast.ExceptHandler, names: _Names) -> Iterator[Found]:
    if (node.type is None or not names.are_specific(node.type)) and not _always_raises(node.body):
        message = (
            "it swallows unexpected exceptions; write the exceptions' own names, or raise again"
        )
        yield node, "blanket except", message


def _context_manager(node: ast.AST) -> Iterator[Found]:
    """`__exit__` is a plain function that returns nothing: anything true ends the exception."""
    rule = "swallowing exit"
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in _EXITS:
        plain = isinstance(node, ast.FunctionDef) and not node.decorator_list
        if not plain or any(map(_returns_something, _own_nodes(node.body))):
            yield node, rule, f"{node.name} must be a plain function that returns None or False"
    elif _binds_exit(node):
        yield node, rule, "__exit__ must be defined by def, where its returns can be read"


def _returns_something(node: ast.AST) -> bool:
    if isinstance(node, (ast.Yield, ast.YieldFrom)):
        return True  # a generator is true
    if not isinstance(node, ast.Return) or node.value is None:
        return False
    return not (isinstance(node.value, ast.Constant) and node.value.value in (None, False))


def _binds_exit(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name in _EXITS
        case ast.alias(name=name, asname=other):
            return (other or name) in _EXITS
        case ast.Constant(value=str(text)):  # of setattr, or of the namespace of a type
            return text in _EXITS
    return False


class _Names:
    """The names that a file binds, each with the places that bind it."""

    def __init__(self, tree: ast.AST) -> None:
        self._bound: dict[str, list[ast.AST | None]] = defaultdict(list)  # None: not settled here
        read = set()
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
                    self._bound[name].append(value)
                    read.add(target)
                case ast.ClassDef(name=name):
                    self._bound[name].append(node)
                case ast.Import(names=aliases):
                    for alias in aliases:
                        module = (alias.asname or alias.name).split(".")[0]
                        self._bound[module].append(node)
                case ast.ImportFrom(names=aliases):
                    for alias in aliases:
                        self._bound[alias.asname or alias.name].append(alias)
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if node not in read:
                    self._bound[name].append(None)
                case (
                    ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                    | ast.arg(arg=name)
                    | ast.ExceptHandler(name=str(name))
                    | ast.MatchAs(name=str(name))
                    | ast.MatchStar(name=str(name))
                    | ast.MatchMapping(rest=str(name))
                ):
                    self._bound[name].append(None)

    def are_specific(self, kind: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
        """Whether an expression names exceptions, and none of them is one of all."""
        match kind:
            case ast.Tuple(elts=kinds):
                return all(self.are_specific(each, seen) for each in kinds)
            case ast.Attribute(attr=name):
                return name not in _BLANKET and self._is_of_module(kind)
            case ast.Name(id=name) if name in self._bound:
                (place, *others) = self._bound[name]
                if others or name in seen or place is None:
                    return False
                return self._is_specific_place(place, seen | {name})
            case ast.Name(id=name):
                return name in _SPECIFIC
        return False

    def _is_of_module(self, kind: ast.expr) -> bool:
        while isinstance(kind, ast.Attribute):
            kind = kind.value
        places = self._bound.get(kind.id, []) if isinstance(kind, ast.Name) else []
        return bool(places) and all(isinstance(each, ast.Import) for each in places)

    def _is_specific_place(self, place: ast.AST, seen: frozenset[str]) -> bool:
        if isinstance(place, ast.alias):
            return place.name not in _BLANKET
        return isinstance(place, ast.ClassDef) or self.are_specific(place, seen)


def _always_raises(body: list[ast.stmt]) -> bool:
    """Whether no path through a handler ends without an exception."""
    if any(_leaving(body)):
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _always_raises(last.body) and _always_raises(last.orelse)
    return isinstance(last, ast.Raise)


def _leaving(statements: Iterable[ast.AST], *, in_loop: bool = False) -> Iterator[ast.AST]:
    """Every `return`, and every `break` and `continue` of a loop around these statements."""
    for node in statements:
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, ast.Return if in_loop else (ast.Return, ast.Break, ast.Continue)):
            yield node
        loop = in_loop or isinstance(node, (ast.For, ast.While))
        yield from _leaving(ast.iter_child_nodes(node), in_loop=loop)


def _own_nodes(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes except those of nested functions."""
    for node in statements:
        if not isinstance(node, _FUNCTIONS):
            yield node
            yield from _own_nodes(ast.iter_child_nodes(node))
