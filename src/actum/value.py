"""Values: immutable classes of named fields, cheap to define.

`@value` means `dataclass(frozen=True, slots=True, kw_only=True)`, and type checkers know it
(PEP 681). Defining a class generates no source and imports nothing: one shared function fills the
first instances, and only a class that is used often gets a compiled `__init__`. The package
defines some two hundred. The functions of the standard `dataclasses` module work on values too.

Not supported: conversion, validation, `InitVar`, zero-argument `super()` inside a value (a class
with slots is created twice, and the cell would refer to the first).
"""

from __future__ import annotations

from operator import attrgetter

TYPE_CHECKING = False  # as in `typing`, which is not imported
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_words):
        return lambda decorator: decorator


#: Instances that the shared function fills before an `__init__` is compiled for their class.
WARM = 8


class FrozenError(AttributeError):
    """A value is immutable; `replace` makes another."""


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()


class Field:
    """One field: its name, its default and its type."""

    __slots__ = ("compare", "default", "default_factory", "kw_only", "name", "repr", "type")

    def __init__(
        self,
        default: Any = ABSENT,
        default_factory: Any = ABSENT,
        repr: bool = True,  # noqa: A002  as in dataclasses
        compare: bool = True,
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.repr = repr
        self.compare = compare
        self.name = ""
        self.type: Any = None
        self.kw_only = False


def field(
    *,
    default: Any = ABSENT,
    default_factory: Any = ABSENT,
    repr: bool = True,  # noqa: A002
    compare: bool = True,
) -> Any:
    """Declare more about a field than a plain default."""
    return Field(default, default_factory, repr, compare)


_SHAPES: list[_Shape] = []


def prepare_all() -> None:
    """Prepare every class that is defined now, as its first instance would. For a process that is
    about to be cloned often."""
    for shape in _SHAPES:
        if not shape.setters:
            _setters(shape)


def compile_all() -> None:
    """Compile the `__init__` of every class that is defined now."""
    for shape in _SHAPES:
        _compiled(shape)


class _Shape:
    """What `@value` knows about one class."""

    __slots__ = (
        "contents",
        "copy",
        "fields",
        "frozen",
        "key",
        "opened",
        "owner",
        "positional",
        "seen",
        "setters",
    )

    def __init__(self, owner: type, fields: dict[str, Field], frozen: bool) -> None:
        _SHAPES.append(self)
        self.owner = owner
        self.fields = fields
        self.frozen = frozen
        self.positional = tuple(name for name, each in fields.items() if not each.kw_only)
        compared = [name for name, each in fields.items() if each.compare]
        self.key: Callable[[Any], Any] = attrgetter(*compared) if compared else _nothing
        #: The contents of all fields, as a tuple.
        self.contents: Callable[[Any], tuple[Any, ...]] = _tuple_of(fields)
        self.seen = 0
        self.opened: type | None = None
        #: Names given to `replace` -> the compiled copy function for them.
        self.copy: dict[tuple[str, ...], Callable[..., Any]] | None = None
        self.setters: list[tuple[str, Any, Any, Any]] = []


def _nothing(_value: object) -> None:
    return None


def _tuple_of(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    names = tuple(names)
    if len(names) > 1:
        return attrgetter(*names)
    # attrgetter of one name returns no tuple.
    return lambda value: tuple(getattr(value, name) for name in names)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field, Field))
def value(
    cls: Any = None,
    /,
    *,
    frozen: bool = True,
    kw_only: bool = True,
    order: bool = False,
    slots: bool = True,
) -> Any:
    """Turn a class of named fields into a value."""
    if cls is None:
        return lambda cls: _make(cls, frozen, kw_only, order, slots)
    return _make(cls, frozen, kw_only, order, slots)


def _make(cls: type, frozen: bool, kw_only: bool, order: bool, slots: bool) -> type:
    fields: dict[str, Field] = {}
    for parent in reversed(cls.__mro__[1:]):
        shape = parent.__dict__.get("__value__")
        if shape is not None:
            fields |= shape.fields
    space = dict(cls.__dict__)
    own = []
    for name, hint in cls.__annotations__.items():
        if isinstance(hint, str) and hint.startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = space.pop(name, ABSENT)
        each = given if isinstance(given, Field) else Field(given)
        each.name, each.type, each.kw_only = name, hint, kw_only
        if slots and name not in fields:
            own.append(name)
        fields[name] = each
    new = {name: each for name, each in _SHARED.items() if name not in space}
    new["__init__"] = _fill
    if "__match_args__" not in space:
        new["__match_args__"] = tuple(name for name, each in fields.items() if not each.kw_only)
    if space.get("__hash__") is None:
        new["__hash__"] = _hash if frozen else None
    if frozen:
        new |= _FROZEN
    if order:
        new |= _ORDERED
    if slots:
        space.pop("__dict__", None)
        space.pop("__weakref__", None)
        cls = type(cls)(cls.__name__, cls.__bases__, {**space, **new, "__slots__": tuple(own)})
    else:
        for name, each in fields.items():
            if isinstance(cls.__dict__.get(name), Field):
                delattr(cls, name)
            if each.default is not ABSENT:
                setattr(cls, name, each.default)
        for name, attribute in new.items():
            setattr(cls, name, attribute)
    cls.__value__ = _Shape(cls, fields, frozen)  # type: ignore[attr-defined]
    return cls


def _shape(kind: type) -> _Shape:
    found: _Shape = kind.__value__  # type: ignore[attr-defined]
    return found


def _fill(self: Any, /, *args: Any, **given: Any) -> None:
    """The `__init__` of every class until one is compiled for it. A wrong call compiles it too, so
    that Python itself reports what is wrong."""
    shape = _shape(type(self))
    shape.seen += 1
    if shape.seen > WARM or len(args) > len(shape.positional):
        return _compiled(shape)(self, *args, **given)
    # A copy: the compiled `__init__` gets a wrong call exactly as it was made.
    left = dict(given)
    for name, argument in zip(shape.positional, args, strict=False):
        if name in left:
            return _compiled(shape)(self, *args, **given)
        left[name] = argument
    for name, put, default, factory in shape.setters or _setters(shape):
        content = left.pop(name, default)
        if content is ABSENT:
            if factory is ABSENT:
                return _compiled(shape)(self, *args, **given)
            content = factory()
        put(self, content)
    if left:
        return _compiled(shape)(self, *args, **given)
    if hasattr(self, "__post_init__"):
        self.__post_init__()
    return None


def _setters(shape: _Shape) -> list[tuple[str, Any, Any, Any]]:
    shape.setters = [
        (name, _setter(shape.owner, name), each.default, each.default_factory)
        for name, each in shape.fields.items()
    ]
    return shape.setters


def _setter(owner: type, name: str) -> Callable[[Any, Any], None]:
    """The slot's descriptor: it writes where `__setattr__` refuses."""
    for kind in owner.__mro__:
        slot = kind.__dict__.get(name)
        if slot is not None and hasattr(slot, "__set__"):
            put: Callable[[Any, Any], None] = slot.__set__
            return put
    return lambda self, content: object.__setattr__(self, name, content)


def _compiled(shape: _Shape) -> Callable[..., None]:
    """Compile an `__init__` for a class, with its real signature."""
    opened = _opened(shape)
    # No field has one of these names.
    names: dict[str, Any] = {
        "ABSENT": ABSENT,
        "__owner__": shape.owner,
        "__opened__": opened,
        "__become__": _become,
    }
    positional: list[str] = []
    keyword: list[str] = []
    writes: list[str] = []
    puts: list[str] = []
    for name, put, default, factory in _setters(shape):
        names[f"put_{name}"], names[f"default_{name}"] = put, default
        content = name
        parameter = name
        if factory is not ABSENT:
            names[f"make_{name}"] = factory
            parameter = f"{name}=ABSENT"
            content = f"make_{name}() if {name} is ABSENT else {name}"
        elif default is not ABSENT:
            parameter = f"{name}=default_{name}"
        (keyword if shape.fields[name].kw_only else positional).append(parameter)
        writes.append(f"self.{name} = {content}")
        puts.append(f"put_{name}(self, {content})")
    body = puts if shape.frozen else writes
    if opened is not None:
        # In an instance of a subclass, the fields are set one by one.
        body = [
            "if self.__class__ is __owner__:",
            " __become__(self, __opened__)",
            *(f" {line}" for line in writes),
            " __become__(self, __owner__)",
            "else:",
            *(f" {line}" for line in puts),
        ]
    if hasattr(shape.owner, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *keyword] if keyword else [])])
    source = f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"])
    exec(compile(source, f"<{shape.owner.__qualname__}>", "exec"), names)  # noqa: S102  our own names
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{shape.owner.__qualname__}.__init__"
    shape.owner.__init__ = init  # type: ignore[misc]
    return init


#: Changes the class of an object to another with the same slot layout.
_become: Callable[[Any, type], None] = object.__dict__["__class__"].__set__


def _opened(shape: _Shape) -> type | None:
    """A subclass whose fields can be assigned normally, which costs Python a fraction of a
    descriptor call. A value has this class until it is filled."""
    owner = shape.owner
    if not shape.frozen or not shape.fields or owner.__dictoffset__:
        return None
    if shape.opened is None:
        # Both: CPython stores them in one slot, which is slow if either is written in Python.
        names = {
            "__slots__": (),
            "__setattr__": object.__setattr__,
            "__delattr__": object.__delattr__,
        }
        shape.opened = type(owner)(owner.__name__, (owner,), names)
    return shape.opened


def _refuse_change(self: object, name: str, *_content: object) -> None:
    raise FrozenError(f"{type(self).__name__}.{name} does not change; use replace()")


def _equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    key = self.__value__.key
    return self is other or key(self) == key(other)


def _hash(self: Any) -> int:
    return hash(self.__value__.key(self))


def _repr(self: Any) -> str:
    shown = (
        f"{name}={getattr(self, name)!r}"
        for name, each in _shape(type(self)).fields.items()
        if each.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _reduce(self: Any) -> tuple[Any, ...]:
    return _again, (type(self), [getattr(self, name) for name in _shape(type(self)).fields])


def _again(kind: Any, contents: list[Any]) -> Any:
    """For `copy` and `pickle`: runs no check and sets no default."""
    new = kind.__new__(kind)
    for (_, put, _, _), content in zip(_setters(_shape(kind)), contents, strict=True):
        put(new, content)
    return new


def _ordering(name: str) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        key = self.__value__.key
        return getattr(key(self), name)(key(other))

    return compare


class _AsDataclass:
    """Lets `dataclasses.replace`, `fields` and `asdict` work on values; built on first access."""

    def __get__(self, _instance: object, owner: type) -> dict[str, Any]:
        import dataclasses

        twins = {}
        for name, each in _shape(owner).fields.items():
            absent = dataclasses.MISSING
            words: dict[str, Any] = {
                "default": absent if each.default is ABSENT else each.default,
                "default_factory": (
                    absent if each.default_factory is ABSENT else each.default_factory
                ),
            }
            twin: Any = dataclasses.field(
                **words, repr=each.repr, compare=each.compare, kw_only=each.kw_only
            )
            twin.name, twin.type = name, each.type
            twin._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
            twins[name] = twin
        return twins


_SHARED: dict[str, Any] = {
    "__eq__": _equal,
    "__repr__": _repr,
    "__reduce__": _reduce,
    "__dataclass_fields__": _AsDataclass(),
}
_FROZEN = {"__setattr__": _refuse_change, "__delattr__": _refuse_change}
_ORDERED = {name: _ordering(name) for name in ("__lt__", "__le__", "__gt__", "__ge__")}


def fields(of: Any) -> tuple[Field, ...]:
    """The fields of a value or of its class, in order."""
    return tuple(_shape(of if isinstance(of, type) else type(of)).fields.values())


def replace(of: T, /, **changes: Any) -> T:
    """A copy of a value that differs in these fields."""
    kind: Any = type(of)
    shape: _Shape = kind.__value__
    names = tuple(changes)
    known = shape.copy
    copy = None if known is None else known.get(names)
    if copy is not None and kind is shape.owner:
        new: T = copy(of, *changes.values())
        return new
    made: T = kind(**{**dict(zip(shape.fields, shape.contents(of), strict=True)), **changes})
    shape.seen += 1
    if shape.seen > WARM and kind is shape.owner:
        _learn_to_copy(shape, names)
    return made


_MOST_COPIES = 16  #: copy functions compiled for one class


def _learn_to_copy(shape: _Shape, names: tuple[str, ...]) -> None:
    """Compile a copy function for a class and these of its fields. It fills the copy while the
    copy can still be written."""
    opened = _opened(shape)
    known = shape.copy = {} if shape.copy is None else shape.copy
    if opened is None or len(known) >= _MOST_COPIES:
        return
    given = {name: f"content_{at}" for at, name in enumerate(names)}
    lines = [f"new.{name} = {given.get(name, f'of.{name}')}" for name in shape.fields]
    lines.append("become(new, owner)")
    if hasattr(shape.owner, "__post_init__"):
        lines.append("new.__post_init__()")
    source = f"def copy({', '.join(['of', *given.values()])}):\n new = blank(opened)\n "
    source += "\n ".join(lines) + "\n return new"
    spaces: dict[str, Any] = {
        "opened": opened,
        "blank": opened.__new__,
        "become": _become,
        "owner": shape.owner,
    }
    exec(compile(source, f"<{shape.owner.__qualname__}>", "exec"), spaces)  # noqa: S102  our own names
    known[names] = spaces["copy"]


def plain(of: Any) -> dict[str, Any]:
    """Field names to contents, unconverted."""
    shape: _Shape = of.__value__
    return dict(zip(shape.fields, shape.contents(of), strict=True))


def as_dict(of: Any) -> dict[str, Any]:
    """Field names to contents; nested values become dictionaries too, also in containers."""
    return {name: _plain(content) for name, content in plain(of).items()}


def _plain(content: Any) -> Any:
    if hasattr(content, "__value__") and not isinstance(content, type):
        return as_dict(content)
    if isinstance(content, list | tuple):
        return type(content)(_plain(each) for each in content)
    if isinstance(content, dict):
        return {key: _plain(each) for key, each in content.items()}
    return content
