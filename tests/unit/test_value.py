"""Values keep every promise of a frozen dataclass, and make it for less."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from functools import cached_property, total_ordering
from typing import ClassVar

import pytest

from actum.value import WARM, FrozenError, as_dict, field, fields, replace, value


@value
class Point:
    x: int
    y: int = 2
    tags: dict[str, int] = field(default_factory=dict)
    label: str = field(default="", compare=False, repr=False)
    kind: ClassVar[str] = "point"

    def sum(self) -> int:
        return self.x + self.y


@value
class Deep(Point):
    z: int
    y: int = 5


@value(kw_only=False)
class Pair:
    first: object
    second: object = None


@value(kw_only=False, order=True)
class Step:
    major: int
    minor: int = 0


@value(frozen=False, kw_only=False)
class Counter:
    count: int = 0
    seen: list[int] = field(default_factory=list)


@value
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


@value
class Nothing:
    pass


@value(slots=False)
class Cached:
    text: str
    end: str = "!"

    @cached_property
    def shouted(self) -> str:
        return self.text.upper() + self.end


@value
class Awkward:
    """Fields that are called as the makers of values call things."""

    opened: int
    owner: int
    become: int
    new: int = 4
    of: int = 5


class Derived(Point):
    """Made by hand: it has a dictionary, and writes what it likes besides the fields."""

    def __init__(self, **given: int) -> None:
        super().__init__(**given)
        self.__dict__["extra"] = "more"


@total_ordering
@value(kw_only=False)
class Version:
    number: int

    def __lt__(self, other: Version) -> bool:
        return self.number < other.number


ALL = (Point, Deep, Pair, Step, Counter, Checked, Nothing, Cached, Version, Awkward)
SHARED = Nothing.__init__


@pytest.fixture(params=["filled by the shared function", "compiled"], autouse=True)
def both_ways(request: pytest.FixtureRequest) -> None:
    """Each promise holds before and after a class gets its own `__init__`."""
    for each in ALL:
        each.__init__, each.__value__.seen, each.__value__.copy = SHARED, 0, None
    if request.param == "compiled":
        for _ in range(WARM + 1):
            Point(x=0), Deep(x=0, z=0), Pair(1), Step(1), Counter(), Checked(low=0, high=0)
            Nothing(), Cached(text=""), Version(1), Awkward(opened=1, owner=2, become=3)
        assert SHARED not in [each.__init__ for each in ALL]


def test_fields_are_filled_given_or_made() -> None:
    point = Point(x=1)
    assert (point.x, point.y, point.tags, point.label) == (1, 2, {}, "")
    assert point.tags is not Point(x=1).tags
    assert Point(x=1, y=7).sum() == 8
    assert Point.kind == "point"
    assert (Pair(1).second, Pair(1, 2).second, Pair(1, second=3).second) == (None, 2, 3)
    assert (Deep(x=1, z=3).y, Deep(x=1, z=3).sum()) == (5, 6)
    assert Nothing() == Nothing()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Point(), "missing 1 required keyword-only argument: 'x'"),
        (lambda: Point(x=1, w=2), "unexpected keyword argument 'w'"),
        (lambda: Point(1), "takes 1 positional argument but 2"),
        (lambda: Pair(1, 2, 3), "takes from 2 to 3 positional arguments but 4"),
        (lambda: Pair(1, first=2), "multiple values for argument 'first'"),
        (lambda: Checked(low=1), "missing 1 required keyword-only argument: 'high'"),
        (lambda: Step(minor=1), "missing 1 required positional argument: 'major'"),
        (lambda: Nothing(a=1), "unexpected keyword argument 'a'"),
    ],
)
def test_wrong_calls_are_refused_in_pythons_own_words(call, said) -> None:
    with pytest.raises(TypeError) as refused:
        call()
    assert said in str(refused.value)


def test_a_value_does_not_change() -> None:
    for each in (Point(x=1), Deep(x=1, z=2), Pair(1), Cached(text="")):
        for name in ("x", "first", "text", "new"):
            with pytest.raises(FrozenError):
                setattr(each, name, 5)
            with pytest.raises(FrozenError):
                delattr(each, name)
    counter = Counter()
    counter.count += 1
    assert counter.count == 1
    with pytest.raises(AttributeError):
        counter.other = 1
    assert not hasattr(counter, "__dict__")
    assert not hasattr(Point(x=1), "__dict__")


def test_equality_hash_and_order_are_those_of_the_fields() -> None:
    assert Point(x=1, label="a") == Point(x=1, label="b")
    assert Point(x=1) != Point(x=2)
    assert Pair(1, 2) != Step(1, 2)
    assert len({Pair(1, 2), Pair(1, 2), Pair(1, 3)}) == 2
    assert sorted([Step(2), Step(1, 5), Step(1)]) == [Step(1), Step(1, 5), Step(2)]
    assert Step(1) <= Step(1) < Step(1, 1)
    assert Version(2) >= Version(1)
    with pytest.raises(TypeError):
        Step(1) < Pair(1)  # noqa: B015
    with pytest.raises(TypeError):
        hash(Counter())


def test_it_shows_its_fields_but_not_those_that_say_no() -> None:
    assert repr(Point(x=1, label="secret")) == "Point(x=1, y=2, tags={})"


def test_a_check_after_filling_runs_on_every_way_in() -> None:
    good = Checked(low=1, high=2)
    for wrong in (lambda: Checked(low=3, high=2), lambda: replace(good, low=3)):
        with pytest.raises(ValueError, match="low is above high"):
            wrong()


def test_replace_makes_another_and_refuses_unknown_names() -> None:
    first = Deep(x=1, z=3, label="kept")
    second = replace(first, y=9)
    assert (second, second.label, first.y) == (Deep(x=1, y=9, z=3), "kept", 5)
    for wrong in ("w", "sum", "kind"):
        with pytest.raises(TypeError, match="unexpected"):
            replace(first, **{wrong: 1})
    with pytest.raises(FrozenError):
        second.y = 3
    awkward = replace(Awkward(opened=1, owner=2, become=3), of=6)
    assert awkward == Awkward(opened=1, owner=2, become=3, new=4, of=6)
    counter = replace(Counter(3), seen=[1])
    assert (counter.count, counter.seen) == (3, [1])


def test_a_class_derived_by_hand_is_filled_too() -> None:
    derived = Derived(x=1, y=3)
    assert type(derived) is Derived
    assert (derived.x, derived.y, derived.extra, derived.sum()) == (1, 3, "more", 4)
    again = replace(derived, x=2)
    assert type(again) is Derived
    assert (again.x, again.y) == (2, 3)
    with pytest.raises(FrozenError):
        derived.x = 2


def test_patterns_match_positional_fields() -> None:
    match Pair(1, "two"):
        case Pair(1, second):
            assert second == "two"
    assert Point.__match_args__ == ()


def test_copies_and_pickles_are_equal() -> None:
    for each in (Point(x=1, tags={"a": 1}), Deep(x=1, z=2), Pair(1), Cached(text="a")):
        for again in (copy.copy(each), copy.deepcopy(each), pickle.loads(pickle.dumps(each))):
            assert again == each
            assert type(again) is type(each)


def test_a_value_with_a_dictionary_can_cache() -> None:
    cached = Cached(text="hi")
    assert (cached.shouted, cached.shouted) == ("HI!", "HI!")


def test_as_dict_goes_into_lists_tuples_and_mappings() -> None:
    nested = Pair({"a": Step(1)}, (Step(2), [Step(3), 4]))
    assert as_dict(nested) == {
        "first": {"a": {"major": 1, "minor": 0}},
        "second": ({"major": 2, "minor": 0}, [{"major": 3, "minor": 0}, 4]),
    }


def test_the_fields_are_in_order_with_the_parents_first() -> None:
    assert [each.name for each in fields(Deep)] == ["x", "y", "tags", "label", "z"]
    assert fields(Deep(x=1, z=2)) == fields(Deep)


def test_the_standard_functions_work_on_values() -> None:
    point = Point(x=1)
    assert dataclasses.replace(point, x=4) == Point(x=4)
    assert dataclasses.asdict(Pair(Step(1)))["first"] == {"major": 1, "minor": 0}
    x, y, tags, label = dataclasses.fields(Point)
    assert (x.default, y.default, tags.default_factory, label.compare) == (
        dataclasses.MISSING,
        2,
        dict,
        False,
    )


def test_making_values_imports_neither_dataclasses_nor_typing() -> None:
    program = (
        "import sys; from actum.value import value\n"
        "@value\nclass A:\n    __annotations__ = {'a': 'int'}\n"
        "A(a=1) == A(a=1); repr(A(a=2))\n"
        "print({'dataclasses', 'inspect', 'typing', 're'} & set(sys.modules))"
    )
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program.replace("import sys;", _FIND)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "set()"


_FIND = f"import sys; sys.path.insert(0, {__import__('actum').__path__[0].rpartition('/')[0]!r});"
