"""The ``Coder`` protocol, and coders for columns of single values and of collections."""

import functools
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

__all__ = [
    "WHOLE",
    "Choice",
    "Code",
    "Coder",
    "Fixed",
    "Many",
    "Map",
    "MisfitError",
    "Plain",
    "Text",
    "check",
    "each",
    "show",
]

Code = Callable[[Sequence[Any]], Sequence[Any]]

WHOLE = -1  # the index of a fault in a value as a whole
_REMEMBERED_ADDRESSES = 4096  # a lab has hundreds; parsing one costs more than the rest of an observation
_SHOWN_CHARACTERS = 80


def show(value: object) -> str:
    """A value for a message, cut to a bearable length."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


class MisfitError(Exception):
    """The value at ``index`` of a column does not fit, at ``trail`` inside it."""

    def __init__(self, index: int, message: str, trail: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.message = message
        self.trail = trail

    def below(self, index: int, step: str) -> "MisfitError":
        """The same fault for the containing value: at its ``index``, one ``step`` down."""
        return MisfitError(index, self.message, step + self.trail)


class Coder(Protocol):
    """Codes a column of values of one type.

    ``classes`` are the classes of its values, ``shapes`` their JSON types: a union chooses by these.
    """

    classes: frozenset[type]
    shapes: frozenset[type]

    def encode(self, column: Sequence[Any]) -> Sequence[Any]:
        """Each value as JSON has it. Raises ``MisfitError`` for the first that does not fit."""

    def decode(self, column: Sequence[Any]) -> Sequence[Any]:
        """Each value again. Raises ``MisfitError`` for the first that does not fit."""


def check(column: Sequence[Any], allowed: frozenset[type], expected: str) -> None:
    """Raise ``MisfitError`` for the first value whose class is not among ``allowed``; subclasses are others."""
    if not allowed.issuperset(map(type, column)):
        for index, value in enumerate(column):
            if type(value) not in allowed:
                raise MisfitError(index, f"expected {expected}, found {show(value)}")


def _convert(column: Sequence[Any], function: Callable[[Any], Any], expected: str) -> list[Any]:
    """``function`` over a column; on failure a second pass finds the first value that it refuses."""
    try:
        return list(map(function, column))
    except (ValueError, LookupError, TypeError):
        for index, value in enumerate(column):
            try:
                function(value)
            except (ValueError, LookupError, TypeError):
                raise MisfitError(index, f"expected {expected}, found {show(value)}") from None
        raise


def each(code: Callable[[Any], Any], column: Sequence[Any]) -> list[Any]:
    """``code`` for each value of a column; faults get their position in the column."""
    coded = []
    for index, value in enumerate(column):
        try:
            coded.append(code(value))
        except MisfitError as misfit:
            raise misfit.below(index, "" if misfit.index == WHOLE else f"[{misfit.index}]") from None
    return coded


class Plain:
    """A type that JSON has itself."""

    def __init__(self, cls: type, also: type | None = None) -> None:
        self.classes: frozenset[type] = frozenset({cls} if also is None else {cls, also})
        self.shapes: frozenset[type] = self.classes
        self._cls = cls
        self._expected = "null" if cls is types.NoneType else cls.__name__

    def encode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.classes, self._expected)
        return column

    def decode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.shapes, self._expected)
        return column if len(self.classes) == 1 else [self._cls(value) for value in column]


class Choice:
    """An enum, by its values."""

    def __init__(self, cls: type[Enum]) -> None:
        self.classes: frozenset[type] = frozenset({cls})
        self._members = {member.value: member for member in cls}
        self.shapes: frozenset[type] = frozenset(str if isinstance(value, str) else int for value in self._members)
        self._expected = "one of " + ", ".join(map(str, self._members))

    def encode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.classes, self._expected)
        return list(map(operator.attrgetter("_value_"), column))

    def decode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.shapes, self._expected)
        return _convert(column, self._members.__getitem__, self._expected)


class Text:
    """An ``ipaddress`` object of one or of both families, by its text."""

    def __init__(self, classes: Sequence[type], parse: Callable[[str], Any]) -> None:
        self.classes: frozenset[type] = frozenset(classes)
        self.shapes: frozenset[type] = frozenset({str})
        self._expected = "an " + " or ".join(cls.__name__ for cls in classes)
        self._parse = functools.lru_cache(_REMEMBERED_ADDRESSES)(parse)

    def encode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.classes, self._expected)
        # A long column holds few objects, and a lookup by value would cost more than writing the text.
        identities = list(map(id, column))
        objects = dict(zip(identities, column, strict=True))
        texts = {identity: str(value) for identity, value in objects.items()}
        return list(map(texts.__getitem__, identities))

    def decode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.shapes, self._expected)
        return _convert(column, self._parse, self._expected)


class Many:
    """``tuple[X, ...]`` as a list."""

    classes: frozenset[type] = frozenset({tuple})
    shapes: frozenset[type] = frozenset({list})

    def __init__(self, item: Coder) -> None:
        self._item = item

    def encode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.classes, "tuple")
        return each(lambda values: list(self._item.encode(values)), column)

    def decode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.shapes, "list")
        return each(lambda values: tuple(self._item.decode(values)), column)


class Fixed:
    """``tuple[X, Y]`` or a named tuple, as a list of that length."""

    shapes: frozenset[type] = frozenset({list})

    def __init__(self, cls: type, items: Sequence[Coder], steps: Sequence[str]) -> None:
        self.classes: frozenset[type] = frozenset({cls})
        self._items = tuple(items)
        self._steps = tuple(steps)
        self._make: Callable[[Sequence[Any]], Any] = getattr(cls, "_make", tuple)

    def encode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.classes, "tuple")
        return list(map(list, self._transposed(column, [item.encode for item in self._items])))

    def decode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.shapes, "list")
        return list(map(self._make, self._transposed(column, [item.decode for item in self._items])))

    def _transposed(self, column: Sequence[Any], codes: Sequence[Code]) -> Sequence[Sequence[Any]]:
        for index, values in enumerate(column):
            if len(values) != len(codes):
                raise MisfitError(index, f"expected {len(codes)} values, found {len(values)}")
        if not column:
            return []
        coded = []
        for code, step, values in zip(codes, self._steps, zip(*column, strict=True), strict=True):
            try:
                coded.append(code(values))
            except MisfitError as misfit:
                raise misfit.below(misfit.index, step) from None
        return list(zip(*coded, strict=True))


class Map:
    """``Mapping[str, X]`` as an object."""

    classes: frozenset[type] = frozenset({dict, types.MappingProxyType})
    shapes: frozenset[type] = frozenset({dict})

    def __init__(self, item: Coder) -> None:
        self._item = item

    def encode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.classes, "mapping")
        return [self._coded(self._item.encode, index, mapping) for index, mapping in enumerate(column)]

    def decode(self, column: Sequence[Any]) -> Sequence[Any]:
        """As ``Coder`` says."""
        check(column, self.shapes, "object")
        return [self._coded(self._item.decode, index, mapping) for index, mapping in enumerate(column)]

    def _coded(self, code: Code, index: int, mapping: Mapping[Any, Any]) -> dict[str, Any]:
        keys = list(mapping)
        try:
            check(keys, frozenset({str}), "a string as key")
        except MisfitError as misfit:
            raise MisfitError(index, misfit.message) from None
        try:
            return dict(zip(keys, code(list(mapping.values())), strict=True))
        except MisfitError as misfit:
            raise misfit.below(index, f"[{keys[misfit.index]!r}]") from None
