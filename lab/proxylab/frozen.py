"""``dataclass`` for frozen, slotted classes, which takes a tenth of the standard library's time.

It differs from the standard library's only in time; ``tests/unit/test_frozen.py`` compares the two.

Theory of operation. The standard library writes six methods of a frozen dataclass as text, and Python 3.11 compiles
each one separately. For the hundred classes of a scenario that took a quarter of the time of ``proxylab check``. Only
``__init__`` needs compiling, since each class has its own parameters; this module compiles it at its first use, and a
short verb uses few classes. The other methods are closures around the names of fields. Fields, slots and the order of
parameters stay the standard library's; type checkers see nothing else.

A class made here has no dataclass above or below it, and each of its fields is a parameter.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

__all__ = ["dataclass"]

ClassT = TypeVar("ClassT")

_set: Final = object.__setattr__


class _Factory:
    """The placeholder in a signature for a default that a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()


def _dataclass(
    *, frozen: Literal[True], slots: Literal[True], kw_only: bool = False
) -> Callable[[type[ClassT]], type[ClassT]]:
    """``dataclasses.dataclass``; ``frozen`` and ``slots`` are there for readers and type checkers."""

    def made(cls: type[ClassT]) -> type[ClassT]:
        given: Any = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
        fields = dataclasses.fields(given)
        methods = {
            "__init__": _InitLater(given, fields),
            "__repr__": _repr([field.name for field in fields if field.repr]),
            **_comparison([field.name for field in fields if field.compare]),
            "__setattr__": _refuse_to_assign,
            "__delattr__": _refuse_to_delete,
            "__getstate__": _state,
            "__setstate__": _restore,
        }
        for name, method in methods.items():
            if cls.__dict__.get(name) is None:
                setattr(given, name, method)
        for parameter in ("init", "repr", "eq", "frozen"):
            setattr(given.__dataclass_params__, parameter, True)
        finished: type[ClassT] = given
        return finished

    return made


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


class _InitLater:
    """The placeholder for a class's ``__init__``, which it makes at its first use."""

    __slots__ = ("_cls", "_fields")

    def __init__(self, cls: type[Any], fields: tuple[Field[Any], ...]) -> None:
        self._cls = cls
        self._fields = fields

    def __get__(self, made: object, cls: type[Any]) -> Callable[..., None]:
        init = _init(self._cls, self._fields)
        self._cls.__init__ = init
        found: Callable[..., None] = init.__get__(made, cls)
        return found


def _init(cls: type[Any], fields: tuple[Field[Any], ...]) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": _set, "_FACTORY": _FACTORY}
    positional: list[str] = []
    by_keyword: list[str] = []
    body: list[str] = []
    for field in fields:
        parameter = value = field.name
        if field.default is not MISSING:
            names[f"_default_{field.name}"] = field.default
            parameter += f"=_default_{field.name}"
        elif field.default_factory is not MISSING:
            names[f"_make_{field.name}"] = field.default_factory
            parameter += "=_FACTORY"
            value = f"_make_{field.name}() if {field.name} is _FACTORY else {field.name}"
        (by_keyword if field.kw_only else positional).append(parameter)
        body.append(f"_set(self, {field.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    star = ["*"] if by_keyword else []
    head = f"def __init__({', '.join(['self', *positional, *star, *by_keyword])}):"
    exec("\n ".join([head, *body] if body else [head, "pass"]), names)  # noqa: S102 - of names of fields, as dataclasses
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    return init


def _repr(names: list[str]) -> Callable[[object], str]:
    @recursive_repr()
    def written(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return written


def _comparison(names: list[str]) -> dict[str, Callable[..., Any]]:
    values = _values(names)

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(values(self))

    return {"__eq__": equal, "__hash__": hashed}


def _values(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """A function from an object to the tuple of its fields' values."""
    if len(names) > 1:
        return attrgetter(*names)  # which makes a tuple of several
    return lambda self: tuple([getattr(self, name) for name in names])


def _refuse_to_assign(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        _set(self, field.name, value)
