"""The coder for unions, which chooses a member by a value's class, or by its tag or JSON type."""

from collections.abc import Mapping, Sequence
from typing import Any

from proxylab.codec.columns import Coder, MisfitError, check, show
from proxylab.codec.records import Record

__all__ = ["Union"]

_TAG = "is"  # a keyword of Python, so no field can have this name


class Union:
    """One of several coders, chosen by the value's class, and in decoding by its tag or JSON type.

    Raises:
        TypeError: two members have the same JSON type and no tag.
    """

    def __init__(self, members: Sequence[Coder]) -> None:
        self.classes: frozenset[type] = frozenset(cls for member in members for cls in member.classes)
        self.shapes: frozenset[type] = frozenset(shape for member in members for shape in member.shapes)
        self._by_class = {cls: member for member in members for cls in member.classes}
        tagged = [member for member in members if type(member) is Record]
        self._tags = {cls.__name__: member for member in tagged for cls in member.classes} if tagged[1:] else {}
        self._by_shape: dict[type | str, Coder] = dict(self._tags.items())
        for member in members:
            for shape in () if member in self._tags.values() else member.shapes:
                if self._by_shape.setdefault(shape, member) is not member or (shape is dict and self._tags):
                    raise TypeError(f"a reader cannot tell the members apart that are a JSON {shape.__name__}")

    def encode(self, column: Sequence[Any]) -> Sequence[Any]:
        """Each value by the member of its class."""
        check(column, self.classes, " or ".join(sorted(cls.__name__ for cls in self.classes)))
        encoded = self._scattered(column, list(map(type, column)), self._by_class, "encode")
        if not self._tags:
            return encoded
        return [
            {_TAG: type(value).__name__, **data} if type(value).__name__ in self._tags else data
            for value, data in zip(column, encoded, strict=True)
        ]

    def decode(self, column: Sequence[Any]) -> Sequence[Any]:
        """Each value by the member that its tag, or else its JSON type, stands for."""
        check(column, self.shapes, " or ".join(sorted(shape.__name__ for shape in self.shapes)))
        keys: list[type | str] = list(map(type, column))
        if self._tags:
            column = list(column)
            for index, data in enumerate(column):
                if type(data) is dict:
                    keys[index] = self._tag(index, data)
                    column[index] = {name: value for name, value in data.items() if name != _TAG}
        return self._scattered(column, keys, self._by_shape, "decode")

    def _tag(self, index: int, data: Mapping[str, Any]) -> str:
        tag = data.get(_TAG)
        if type(tag) is not str or tag not in self._tags:
            allowed = ", ".join(sorted(self._tags))
            raise MisfitError(index, f"expected {_TAG!r} to be one of {allowed}, found {show(tag)}")
        return tag

    def _scattered(
        self, column: Sequence[Any], keys: Sequence[Any], by_key: Mapping[Any, Coder], way: str
    ) -> list[Any]:
        """``column`` coded once for each member, with the results back in order."""
        groups: dict[Coder, list[int]] = {}
        for key in set(keys):
            groups.setdefault(by_key[key], [])
        if len(groups) == 1:
            return list(getattr(next(iter(groups)), way)(column))
        for index, key in enumerate(keys):
            groups[by_key[key]].append(index)
        coded: list[Any] = [None] * len(column)
        for member, positions in groups.items():
            try:
                results = getattr(member, way)([column[index] for index in positions])
            except MisfitError as misfit:
                raise misfit.below(positions[misfit.index], "") from None
            for index, result in zip(positions, results, strict=True):
                coded[index] = result
        return coded
