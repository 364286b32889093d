"""``proxylab.frozen``: the same class by the standard library and by ours, side by side."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import pytest

from proxylab.frozen import dataclass

PLAIN = {"frozen": True, "slots": True}
BY_KEYWORD = {**PLAIN, "kw_only": True}


class One:
    """A single field."""

    value: int


class Several:
    """Fields with and without defaults."""

    name: str
    size: int = 3
    words: tuple[str, ...] = field(default=())
    numbers: list[int] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False)


class Checked:
    """A look at the fields once they are there, and a text of its own."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("upside down")

    def __repr__(self) -> str:
        return f"{self.low}…{self.high}"


class Nothing:
    """No field."""


SAMPLES: dict[type, list[dict[str, Any]]] = {
    One: [{"value": 1}, {"value": 2}, {"value": 1.0}],
    Several: [{"name": "a"}, {"name": "a", "numbers": [1]}, {"name": "b", "size": 4, "words": ("x",), "note": "n"}],
    Checked: [{"low": 1, "high": 2}, {"low": 2, "high": 2}],
    Nothing: [{}],
}


def twins(shape: type, way: dict[str, Any]) -> tuple[type[Any], type[Any]]:
    """The class as the standard library makes it, and as we do."""
    body = {name: value for name, value in vars(shape).items() if name not in ("__dict__", "__weakref__")}
    theirs: type[Any] = dataclasses.dataclass(**way)(type(shape.__name__, (), dict(body)))
    ours: type[Any] = dataclass(**way)(type(shape.__name__, (), dict(body)))
    return theirs, ours


TWINS = [
    pytest.param(*twins(shape, way), samples, id=f"{shape.__name__}{'-by-keyword' * ('kw_only' in way)}")
    for shape, samples in SAMPLES.items()
    for way in (PLAIN, BY_KEYWORD)
]


@pytest.mark.parametrize(("theirs", "ours", "samples"), TWINS)
class TestTheSameAsTheStandardLibrary:
    def test_what_stands_in_the_class(self, theirs: type, ours: type, samples: list[dict[str, Any]]) -> None:
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
        assert ours.__init__.__annotations__ == theirs.__init__.__annotations__
        assert ours.__init__.__qualname__ == theirs.__init__.__qualname__
        assert ours.__slots__ == theirs.__slots__
        assert ours.__match_args__ == theirs.__match_args__
        assert ours.__doc__ == theirs.__doc__
        assert repr(ours.__dataclass_params__) == repr(theirs.__dataclass_params__)
        assert [each.name for each in dataclasses.fields(ours)] == [each.name for each in dataclasses.fields(theirs)]

    def test_what_objects_say_and_are_equal_to(self, theirs: type, ours: type, samples: list[dict[str, Any]]) -> None:
        one, other = [theirs(**each) for each in samples], [ours(**each) for each in samples]
        assert list(map(repr, other)) == list(map(repr, one))
        assert [a == b for a in other for b in other] == [a == b for a in one for b in one]
        assert list(map(dataclasses.asdict, other)) == list(map(dataclasses.asdict, one))
        assert not any(a == b for a, b in zip(one, other, strict=True))
        assert all(hash(a) == hash(b) for a in other for b in other if a == b)

    def test_that_nothing_can_be_changed(self, theirs: type, ours: type, samples: list[dict[str, Any]]) -> None:
        tried = [(cls, name) for cls in (theirs, ours) for name in ours.__slots__]
        # For a name that is no field Python 3.11's own raises TypeError: its `super()` means the class without slots.
        for cls, name in [*tried, (ours, "nobody")]:
            made = cls(**samples[0])
            with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
                setattr(made, name, 1)
            with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
                delattr(made, name)

    def test_copies(self, theirs: type, ours: type, samples: list[dict[str, Any]]) -> None:
        made = ours(**samples[0])
        for twin in (copy.copy(made), copy.deepcopy(made), replace(made)):
            assert twin == made
            assert twin is not made

    def test_what_is_missing_or_too_much(self, theirs: type, ours: type, samples: list[dict[str, Any]]) -> None:
        for wrong in ({"nobody": 1}, {}):
            said = []
            for cls in (theirs, ours):
                try:
                    said.append(repr(cls(**wrong)))
                except TypeError as error:
                    said.append(str(error))
            assert said[0] == said[1]


def test_a_default_is_made_for_every_object() -> None:
    _, ours = twins(Several, PLAIN)
    assert ours("a").numbers is not ours("a").numbers


def test_a_look_at_the_fields_is_taken() -> None:
    _, ours = twins(Checked, PLAIN)
    with pytest.raises(ValueError, match="upside down"):
        ours(2, 1)


@dataclass(frozen=True, slots=True)
class Carried:
    """A class that pickle can find by its name."""

    number: int
    word: str = "w"


def test_it_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Carried(1))) == Carried(1)


def test_one_that_holds_itself_is_written_in_the_end() -> None:
    held: list[object] = []
    made = twins(One, PLAIN)[1](held)
    held.append(made)
    assert repr(made) == "One(value=[...])"
