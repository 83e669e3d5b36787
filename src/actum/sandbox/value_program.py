"""Converts the value of a snippet to JSON, inside a sandbox. Used by `snippet_program.py`.

A value that JSON has stays as it is. A value with one obvious form in JSON gets that form. Every
other value becomes a *mark*: an object with the key `$type`, and `$repr`, `$base64` or `$items`. A
dictionary that has the key `$type` itself is written as its `$items`, so that a mark is never
ambiguous. Size and depth are bounded.

Imports nothing for a check: numpy and pandas are recognised only if the snippet has imported them.
The objects are the snippet's, so everything that they do here is the snippet's own doing.
"""

from __future__ import annotations

import sys
from binascii import b2a_base64
from json import JSONEncoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TYPE, REPR, BASE64, ITEMS, TRUNCATED = "$type", "$repr", "$base64", "$items", "$truncated"
_DEPTH = 100
_REPR_LETTERS = 16_384
_TYPE_LETTERS = 200
#: Bits of the largest integer whose digits Python itself converts to text and back.
_INTEGER_BITS = 4_300 * 3
_PLAIN = frozenset({int, float, bool, type(None)})
#: Standard types that are text in JSON: module, class, and the function that makes the text.
_TEXTS = (
    ("datetime", "date", "isoformat"),
    ("datetime", "time", "isoformat"),
    ("decimal", "Decimal", "__str__"),
    ("uuid", "UUID", "__str__"),
    ("pathlib", "PurePath", "__str__"),
)
_LISTED: tuple[type, ...] = (
    list,
    tuple,
    range,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)
_encode = JSONEncoder(allow_nan=False).encode


def encoded(value: Any, most: int) -> str:
    """`value` as JSON of at most `most` letters."""
    for exact in (False, True):
        try:
            text = _encode(_Conversion(most, exact=exact).of(value, 0))
        except ValueError:  # a number that JSON does not have
            continue
        except (_TooLong, RecursionError, MemoryError):
            break
        if len(text) <= most:
            return text
        break
    return _encode(_cut_short(value))


class _TooLong(Exception):
    pass


class _Conversion:
    def __init__(self, most: int, *, exact: bool) -> None:
        self._left = most
        self._within: set[int] = set()  #: ids of the objects around the current one
        #: Numbers are examined one by one. Rarely needed, and most numbers are in long lists.
        self._plain = frozenset({bool, type(None)}) if exact else _PLAIN

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in self._plain:
            return value
        if kind is str:
            self._spend(len(value))
            return value
        own = id(value)
        if depth > _DEPTH or own in self._within:
            return self._mark(value)
        self._within.add(own)
        try:
            return self._container(value, kind, depth)
        finally:
            self._within.discard(own)

    def _container(self, value: Any, kind: type, depth: int) -> Any:
        if kind is list or kind is tuple:
            return self._list(value, depth)
        if kind is dict:
            return self._object([*value.items()], depth, "dict")
        try:
            return self._other(value, depth)
        except _TooLong:
            raise
        except (Exception, SystemExit):  # noqa: BLE001 -- methods of the snippet's objects may raise
            return self._mark(value)

    def _spend(self, letters: int) -> None:
        self._left -= letters
        if self._left < 0:
            raise _TooLong

    def _list(self, items: Any, depth: int) -> list[Any]:
        self._spend(2 * len(items))
        plain, deeper, of = self._plain, depth + 1, self.of
        return [item if type(item) in plain else of(item, deeper) for item in items]

    def _object(self, pairs: list[tuple[Any, Any]], depth: int, kind: str) -> dict[str, Any]:
        self._spend(4 * len(pairs))
        named = {}
        for key, each in pairs:
            name = key if type(key) is str else self._name(key, depth)
            if name is not None and name != TYPE:
                named[name] = each
        if len(named) < len(pairs):  # a key that JSON does not have, or two that are one in JSON
            items = [[self.of(key, depth + 2), self.of(each, depth + 2)] for key, each in pairs]
            return {TYPE: kind, ITEMS: items}
        self._spend(sum(map(len, named)))
        return {name: self.of(each, depth + 1) for name, each in named.items()}

    def _name(self, key: Any, depth: int) -> str | None:
        """A key as JSON has it; ``None`` if JSON has no such key."""
        key = self.of(key, depth)
        if type(key) is str:
            return key
        return _encode(key) if type(key) in _PLAIN else None

    def _other(self, value: Any, depth: int) -> Any:
        """A value that is not exactly of one of JSON's types."""
        if _is(value, "enum", "Enum"):
            return self.of(value.value, depth + 1)
        if isinstance(value, str):
            return self.of(str.__str__(value), depth)
        if isinstance(value, float):
            return self._number(float.__float__(value), value)
        if isinstance(value, int):
            return self._number(int.__int__(value), value)
        if isinstance(value, bytes | bytearray | memoryview):
            self._spend(len(memoryview(value).cast("B")) * 4 // 3)
            text = b2a_base64(value, newline=False).decode()
            return {TYPE: type_name(value), BASE64: text}
        if isinstance(value, set | frozenset):
            self._spend(2 * len(value))
            return self._list(_in_order(value), depth)
        if isinstance(value, _LISTED) or _is(value, "collections", "deque"):
            self._spend(2 * len(value))
            return self._list([*value], depth)
        if _is(value, "pandas", "DataFrame", "Series", "Index", "Timestamp") or _is_missing(value):
            return self._of_pandas(value, depth)
        if _is(value, "numpy", "ndarray", "generic"):
            return self._of_numpy(value, depth)
        if isinstance(value, dict) or _is(value, "collections.abc", "Mapping"):
            self._spend(4 * len(value))
            return self._object([*value.items()], depth, type_name(value))
        for module, name, method in _TEXTS:
            if _is(value, module, name):
                return self.of(getattr(value, method)(), depth + 1)
        if _is(value, "array", "array"):
            self._spend(2 * len(value))
            return self._list(value.tolist(), depth)
        fields = getattr(type(value), "__dataclass_fields__", None)
        if isinstance(fields, dict):
            names = [name for name in fields if hasattr(value, name)]
            pairs = [(name, getattr(value, name)) for name in names]
            return self._object(pairs, depth, type_name(value))
        return self._mark(value)

    def _number(self, number: Any, value: Any) -> Any:
        """A number that JSON has, or a mark: NaN, an infinity, and integers of which Python itself
        refuses to convert the digits."""
        if type(number) is float:
            finite = number - number == 0
            return number if finite else {TYPE: type_name(value), REPR: repr(number)}
        if number.bit_length() <= _INTEGER_BITS:
            return number
        digits = hex(number)
        return self._marked(type_name(value), digits)

    def _of_numpy(self, value: Any, depth: int) -> Any:
        self._spend(2 * int(value.size))
        if value.dtype.kind == "m":
            return self._mark(value)  # its numbers mean nothing without their unit
        if value.dtype.kind == "M":
            value = sys.modules["numpy"].datetime_as_string(value)
        found = value.tolist()
        # A type of numpy that Python has no equivalent for stays what it is.
        return self._mark(value) if type(found) is type(value) else self.of(found, depth + 1)

    def _of_pandas(self, value: Any, depth: int) -> Any:
        """A table as the arguments of its class. Missing values in it are null."""
        if _is_missing(value):
            return self._mark(value)
        if _is(value, "pandas", "Timestamp"):
            return self.of(value.isoformat(), depth)
        self._spend(2 * int(value.size))
        if _is(value, "pandas", "Index"):
            return self._cells(value.tolist(), depth + 1)
        index = self._cells(value.index.tolist(), depth + 2)
        if _is(value, "pandas", "Series"):
            data = self._cells(value.tolist(), depth + 2)
            return {"name": self.of(value.name, depth + 1), "index": index, "data": data}
        rows = value.itertuples(index=False, name=None)
        return {
            "columns": self._list(value.columns.tolist(), depth + 1),
            "index": index,
            "data": [self._cells(row, depth + 3) for row in rows],
        }

    def _cells(self, cells: Any, depth: int) -> list[Any]:
        return [None if _is_missing(cell) else self.of(cell, depth) for cell in cells]

    def _mark(self, value: Any) -> dict[str, Any]:
        name = type_name(value)
        try:
            text = str.__str__(repr(value))
        except BaseException as error:  # noqa: BLE001 -- also an exit: the value is not lost
            text = f"<{name}: its repr raised {type(error).__name__}>"
        return self._marked(name, text)

    def _marked(self, name: str, text: str) -> dict[str, Any]:
        self._spend(min(len(text), _REPR_LETTERS))
        if len(text) > _REPR_LETTERS:
            return {TYPE: name, REPR: text[:_REPR_LETTERS], TRUNCATED: True}
        return {TYPE: name, REPR: text}


def _is(value: Any, module: str, *names: str) -> bool:
    """Whether `value` is of a class of a module that the snippet has imported."""
    found = sys.modules.get(module)
    if found is None:
        return False
    classes = [getattr(found, name, None) for name in names]
    return any(isinstance(each, type) and isinstance(value, each) for each in classes)


def _is_missing(cell: Any) -> bool:
    """NaN, NaT and NA of pandas. Only where pandas is imported."""
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return False
    if isinstance(cell, float):
        return cell != cell
    return cell is not None and any(cell is getattr(pandas, name, None) for name in ("NaT", "NA"))


def _in_order(items: Any) -> list[Any]:
    """The items of a set. The same set gives the same list, as far as that can be."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=lambda item: (type_name(item), repr(item)))


def type_name(value: Any) -> str:
    kind = type(value)
    try:
        module = kind.__module__
        text = kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
        return str.__str__(text)[:_TYPE_LETTERS]
    except Exception:  # noqa: BLE001 -- a metaclass of the snippet may raise anything
        return "?"


def _cut_short(value: Any) -> dict[str, Any]:
    """The mark of a value that is too long. Only its beginning is converted to text."""
    import reprlib

    short = reprlib.Repr()
    short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = short.maxdict = 100
    short.maxdeque = short.maxarray = 100
    short.maxstring = short.maxother = short.maxlong = _REPR_LETTERS
    try:
        text = str.__str__(short.repr(value))
    except BaseException as error:  # noqa: BLE001 -- as in `_mark`
        text = f"<{type_name(value)}: its repr raised {type(error).__name__}>"
    return {TYPE: type_name(value), REPR: text[:_REPR_LETTERS], TRUNCATED: True}
