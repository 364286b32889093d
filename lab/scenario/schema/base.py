"""What the shapes are made of.

Owns: the two base models, closed words, ranges, functions that look at a value, and keys that have no effect.
Must not: know any key.

Theory of operation. A command that reads one file spends most of its time before it reads: pydantic makes validators
of shapes. So no more is made than the file needs, and no more is asked meanwhile: a shape has its validator when a file
first has such a mapping, and those that few files have are not part of the validators around them (``Seldom``).
``Before`` and ``After`` are pydantic's ``BeforeValidator`` and ``AfterValidator``, but for the question what parameters
the function has.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from lab.frozen import dataclass
from lab.scenario.problems import describe, listed, shown

__all__ = [
    "REFUSED",
    "After",
    "Before",
    "Between",
    "Ignored",
    "ManifestShape",
    "ScenarioShape",
    "Seldom",
    "Shape",
    "ignored_keys",
    "is_ignored",
    "no_entries",
    "no_items",
    "refused",
    "word_of",
]

REFUSED = "refused"
"""The pydantic error type of a value that we refuse; its context is the arguments of ``Problems.add``."""


def refused(what: str, *, allowed: str = "", word: str = "", known: Iterable[str] = ()) -> PydanticCustomError:
    """The error to raise in a validator; the arguments are those of ``Problems.add``."""
    return PydanticCustomError(
        REFUSED, "{what}", {"what": what, "allowed": allowed, "word": word, "known": [*map(str, known)]}
    )


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class Shape(BaseModel):
    """A mapping with known keys."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=_camel,
        defer_build=True,  # a file has a few of the shapes; the others need no validator
    )


@dataclass(frozen=True, slots=True)
class Before:
    """A function that looks at a value before the type does, and makes it what the type wants. It raises ``refused``.

    ``written`` is the type of what an author writes, for editors, where that is not the type itself.
    """

    function: Callable[[Any], object]
    written: Any = None

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Call it first."""
        return core_schema.no_info_before_validator_function(self.function, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Tell editors of what is written."""
        return handler(schema if self.written is None else TypeAdapter(self.written).core_schema)


@dataclass(frozen=True, slots=True)
class After:
    """A function that looks at a value of the type when all else is right. It raises ``refused``."""

    function: Callable[[Any], object]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Call it last."""
        return core_schema.no_info_after_validator_function(self.function, handler(source))


ShapeT = TypeVar("ShapeT", bound=Shape)


@dataclass(frozen=True, slots=True)
class _Apart:
    """Says of a shape that it is no part of the validator around it."""

    shape: type[Shape]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A function, which has the validator made. What it refuses, pydantic-core puts among the other mistakes."""
        return core_schema.no_info_plain_validator_function(self.shape.model_validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Tell editors of the shape."""
        self.shape.model_rebuild()
        whole = self.shape.__pydantic_core_schema__
        return handler(
            core_schema.no_info_plain_validator_function(self.shape.model_validate, json_schema_input_schema=whole)
        )


if TYPE_CHECKING:
    Seldom = Annotated[ShapeT, ...]
    """A shape that few files have."""
else:

    class Seldom:
        """A shape that few files have."""

        def __class_getitem__(cls, shape: type[Shape]) -> object:
            """The type of a key whose values are of the shape."""
            return Annotated[shape, _Apart(shape)]


def _has_value(value: object) -> object:
    if value is None:
        raise refused("has no value", allowed="give it one, or leave the key out")
    return value


_HAS_VALUE: Final = Before(_has_value)


class ScenarioShape(Shape):
    """A mapping of our own format: a key without a value is a slip, not a default."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: object) -> None:
        """Look at the value of every key before anything else does."""
        for field in cls.model_fields.values():
            if _HAS_VALUE not in field.metadata:
                field.metadata.append(_HAS_VALUE)


class ManifestShape(Shape):
    """A mapping of a Kubernetes object: a null is as good as an absent key, as for the API server."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """Says of a key, to whoever lists keys, that it is no ordinary one."""

    name: str


_IGNORED = _Mark("ignored")


Ignored = Annotated[Any, _IGNORED]
"""A key of a Kubernetes object that has no effect on proxying."""


def is_ignored(metadata: Iterable[object]) -> bool:
    """Whether a field with this metadata is ``Ignored``."""
    return _IGNORED in metadata


def ignored_keys(shape: Shape, path: str = "") -> Iterator[str]:
    """The keys that the author wrote and that have no effect, as paths without indexes."""
    for name in shape.model_fields_set:
        declared, value = type(shape).model_fields[name], getattr(shape, name)
        here = f"{path}{declared.alias}"
        if is_ignored(declared.metadata):
            yield here
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Shape):
                yield from ignored_keys(inner, here + ("[]." if isinstance(value, list) else "."))


def no_items() -> list[Any]:
    """Makes an empty list, as ``list`` does.

    pydantic asks a ``default_factory`` for its parameters. Those of ``list`` and ``dict`` nobody has written down:
    ``inspect`` reads the text of the class to find that out, which takes a hundred times as long.
    """
    return []


def no_entries() -> dict[str, Any]:
    """Makes an empty mapping, as ``dict`` does; see ``no_items``."""
    return {}


Word = TypeVar("Word", bound=StrEnum)


def word_of(words: type[Word]) -> Callable[[object], Word]:
    """A validator for a closed set of words."""
    known = tuple(words)

    def validate(value: object) -> Word:
        if isinstance(value, str):
            if value in known:
                return words(value)
            raise refused(f"{shown(value)} is unknown", allowed=f"allowed: {listed(known)}", word=value, known=known)
        raise refused(f"must be one of {listed(known)}, is {describe(value)}")

    return validate


@dataclass(frozen=True, slots=True)
class Between:
    """A whole number in a range, both ends allowed. ``why`` says more than the numbers do."""

    low: int
    high: int
    why: str = ""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the range after the type."""
        return core_schema.no_info_after_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Tell the range in the JSON Schema too."""
        return {**handler(schema), "minimum": self.low, "maximum": self.high}

    def _validate(self, value: int | None) -> int | None:
        if value is None or self.low <= value <= self.high:
            return value
        reason = f" ({self.why})" if self.why else ""
        raise refused(f"{value} is out of range", allowed=f"allowed: {self.low} to {self.high}{reason}")
