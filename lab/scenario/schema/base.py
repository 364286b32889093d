"""What the shapes are made of.

Owns: the two base models, closed words, ranges, and keys that the format has but this version cannot run.
Must not: know any key.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, field_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue, SkipJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from lab.scenario.problems import describe, listed, shown

__all__ = [
    "LATER",
    "REFUSED",
    "Between",
    "Ignored",
    "Later",
    "ManifestShape",
    "ScenarioShape",
    "Shape",
    "ignored_keys",
    "is_ignored",
    "is_later",
    "not_yet",
    "refused",
    "word_of",
]

REFUSED = "refused"
"""The pydantic error type of a value that we refuse; its context is the arguments of ``Problems.add``."""

LATER = "later"
"""The pydantic error type of a key that this version cannot run."""


def refused(what: str, *, allowed: str = "", word: str = "", known: Iterable[str] = ()) -> PydanticCustomError:
    """The error to raise in a validator; the arguments are those of ``Problems.add``."""
    return PydanticCustomError(
        REFUSED, "{what}", {"what": what, "allowed": allowed, "word": word, "known": [*map(str, known)]}
    )


def not_yet(what: str, *, allowed: str = "") -> PydanticCustomError:
    """The error for what the format has and this version cannot run."""
    return refused(f"not yet: this version cannot run {what}", allowed=allowed)


class Shape(BaseModel):
    """A mapping with known keys."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
    )


class ScenarioShape(Shape):
    """A mapping of our own format: a key without a value is a slip, not a default."""

    @field_validator("*", mode="before")
    @classmethod
    def _has_value(cls, value: object) -> object:
        if value is None:
            raise refused("has no value", allowed="give it one, or leave the key out")
        return value


class ManifestShape(Shape):
    """A mapping of a Kubernetes object: a null is as good as an absent key, as for the API server."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """Says of a key, to whoever lists keys, that it is no ordinary one."""

    name: str


_LATER = _Mark("later")
_IGNORED = _Mark("ignored")


def _refuse_later(_value: object) -> object:
    raise PydanticCustomError(LATER, "not yet")


Later = Annotated[SkipJsonSchema[Any], BeforeValidator(_refuse_later), _LATER]
"""A key of the format that this version cannot run: recognised, and refused as such."""

Ignored = Annotated[Any, _IGNORED]
"""A key of a Kubernetes object that has no effect on proxying."""


def is_later(metadata: Iterable[object]) -> bool:
    """Whether a field with this metadata is ``Later``."""
    return _LATER in metadata


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


Word = TypeVar("Word", bound=StrEnum)


def word_of(words: type[Word], now: Iterable[Word] = (), later: Iterable[str] = ()) -> Callable[[object], Word]:
    """A validator for a closed set of words.

    Args:
        words: every word that has a meaning.
        now: those that this version can run; all of them where none are given.
        later: words that the format has but ``words`` does not hold yet.
    """
    running = tuple(now) or tuple(words)
    known = (*words, *later)

    def validate(value: object) -> Word:
        if isinstance(value, str):
            if value in running:
                return words(value)
            if value in known:
                raise not_yet(shown(value), allowed=f"allowed: {listed(running)}")
            raise refused(f"{shown(value)} is unknown", allowed=f"allowed: {listed(running)}", word=value, known=known)
        raise refused(f"must be one of {listed(running)}, is {describe(value)}")

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
