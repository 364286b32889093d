"""Coders for dataclasses and for tables of them."""

import dataclasses
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import NODEFAULT, Struct, structs

from proxylab.codec.columns import WHOLE, Coder, MisfitError, check, each, show
from proxylab.codec.spelling import length_of, read_spelled, spelled

__all__ = ["Fields", "Record", "Table", "names"]

_ABSENT: Any = object()


def names(cls: Any) -> tuple[str, ...]:
    """The names of a record's fields."""
    return tuple(_defaults(cls))


def _defaults(cls: Any) -> dict[str, Any]:
    # One default for all objects: fields with a factory are mappings, and no code writes to them.
    made: dict[str, Any]
    if issubclass(cls, Struct):
        made = {each.name: each for each in structs.fields(cls)}
        missing: Any = NODEFAULT
    else:
        made = {each.name: each for each in dataclasses.fields(cls)}
        missing = dataclasses.MISSING
    return {
        name: each.default_factory()
        if each.default_factory is not missing
        else _ABSENT
        if each.default is missing
        else each.default
        for name, each in made.items()
    }


class Fields:
    """The fields of a dataclass, coded column by column."""

    def __init__(self, cls: type, coders: Mapping[str, Coder]) -> None:
        self.cls = cls
        self.names = tuple(coders)
        self.defaults = _defaults(cls)
        self._coders = coders
        self._getters = {name: operator.attrgetter(name) for name in coders}

    def raw(self, values: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
        """The columns of ``values``, without those that hold only the field's default."""
        for name, getter in self._getters.items():
            column = list(map(getter, values))
            default = self.defaults[name]
            # The first value alone settles it for nearly every column that is needed.
            if default is _ABSENT or column[:1] != [default] or column.count(default) != len(column):
                yield name, column

    def encode(self, name: str, column: Sequence[Any]) -> Sequence[Any]:
        """One field's column as JSON."""
        return self._step(name, self._coders[name].encode, column)

    def decode(self, name: str, column: Sequence[Any]) -> Sequence[Any]:
        """One field's column from JSON."""
        return self._step(name, self._coders[name].decode, column)

    def read(self, name: str, given: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any]:
        """One field's column of a table, from a list or its spelled form."""
        if isinstance(given, Mapping):
            return self._step(name, lambda spelling: read_spelled(spelling, self._coders[name].decode), given)
        return self.decode(name, given)

    def decode_sparse(self, name: str, column: Sequence[Any]) -> Sequence[Any]:
        """One field's column, in which ``_ABSENT`` stands for the default."""
        if _ABSENT not in column:
            return self.decode(name, column)
        default = self.defaults[name]
        if default is _ABSENT:
            raise MisfitError(column.index(_ABSENT), f"{self.cls.__name__} needs {name!r}")
        present = [index for index, value in enumerate(column) if value is not _ABSENT]
        filled = [default] * len(column)
        try:
            decoded = self.decode(name, [column[index] for index in present])
        except MisfitError as misfit:
            raise misfit.below(present[misfit.index], "") from None
        for index, value in zip(present, decoded, strict=True):
            filled[index] = value
        return filled

    def build(self, columns: Sequence[Sequence[Any]], count: int) -> Sequence[Any]:
        """``count`` objects from the decoded columns, in the order of the fields."""
        if not self.names:
            return [self.cls() for _ in range(count)]
        return [self.cls(**dict(zip(self.names, row, strict=True))) for row in zip(*columns, strict=True)]

    def refuse_unknown(self, names: Sequence[Any], index: int) -> None:
        """Raise ``MisfitError`` for value ``index`` if one of ``names`` is no field."""
        for name in names:
            if name not in self._coders:
                fields = ", ".join(self.names) or "none"
                raise MisfitError(index, f"{self.cls.__name__} has no field {show(name)}; its fields are {fields}")

    def _step(self, name: str, code: Callable[[Any], Sequence[Any]], column: Any) -> Sequence[Any]:
        try:
            return code(column)
        except MisfitError as misfit:
            raise misfit.below(misfit.index, f".{name}") from None


class Record:
    """A dataclass as an object of the fields that differ from their defaults."""

    shapes: frozenset[type] = frozenset({dict})

    def __init__(self, fields: Fields) -> None:
        self.classes: frozenset[type] = frozenset({fields.cls})
        self._fields = fields

    def encode(self, column: Sequence[Any]) -> Sequence[Any]:
        """One object for each value."""
        check(column, self.classes, self._fields.cls.__name__)
        objects: list[dict[str, Any]] = [{} for _ in column]
        for name, raw in self._fields.raw(column):
            default = self._fields.defaults[name]
            for target, value, encoded in zip(objects, raw, self._fields.encode(name, raw), strict=True):
                if default is _ABSENT or value != default:
                    target[name] = encoded
        return objects

    def decode(self, column: Sequence[Any]) -> Sequence[Any]:
        """One value for each object."""
        fields = self._fields
        check(column, self.shapes, f"an object ({fields.cls.__name__})")
        for index, data in enumerate(column):
            fields.refuse_unknown(list(data), index)
        columns = [fields.decode_sparse(name, [data.get(name, _ABSENT) for data in column]) for name in fields.names]
        return fields.build(columns, len(column))


class Table:
    """A tuple of one dataclass as an object of columns.

    It omits a column that holds only the field's default, unless no other column shows the table's length.
    """

    classes: frozenset[type] = frozenset({tuple})
    shapes: frozenset[type] = frozenset({dict})

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._rows = frozenset({fields.cls})
        self._title = f"a table of {fields.cls.__name__}"

    def encode(self, column: Sequence[Any]) -> Sequence[Any]:
        """One table for each tuple."""
        check(column, self.classes, f"a tuple of {self._fields.cls.__name__}")
        return each(self._encode, column)

    def decode(self, column: Sequence[Any]) -> Sequence[Any]:
        """One tuple for each table."""
        check(column, self.shapes, self._title)
        return each(self._decode, column)

    def _encode(self, values: Sequence[Any]) -> dict[str, Sequence[Any] | dict[str, Any]]:
        check(values, self._rows, self._fields.cls.__name__)
        raw = self._fields.raw(values) if values else ()
        columns = {name: spelled(self._fields.encode(name, column)) for name, column in raw}
        if values and not columns:
            first = self._fields.names[0]
            columns[first] = self._fields.encode(first, [getattr(value, first) for value in values])
        return columns

    def _decode(self, data: Mapping[str, Any]) -> tuple[Any, ...]:
        fields = self._fields
        fields.refuse_unknown(list(data), WHOLE)
        lengths = {name: length_of(column) for name, column in data.items()}
        count = next(iter(lengths.values()), 0)
        if count is None or len(set(lengths.values())) > 1:
            raise MisfitError(WHOLE, f"expected {self._title}: lists of one length, found {show(lengths)}")
        columns = []
        for name in fields.names:
            given = data.get(name)
            if given is None and count and fields.defaults[name] is _ABSENT:
                raise MisfitError(WHOLE, f"{fields.cls.__name__} needs {name!r}")
            columns.append([fields.defaults[name]] * count if given is None else fields.read(name, given))
        return tuple(fields.build(columns, count))
