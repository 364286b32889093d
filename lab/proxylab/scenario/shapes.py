"""The bases of the pydantic models that ``reading`` makes, and how pydantic reads a closed set of words.

Pydantic builds a model's validator when a file first holds such a mapping (``defer_build``).
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

from proxylab.scenario.keys import Read, refused
from proxylab.scenario.problems import describe, listed, shown

__all__ = ["HAS_VALUE", "LooseShape", "ManifestShape", "ScenarioShape", "Shape", "word_of"]


class Shape(BaseModel):
    """A mapping with known keys."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        defer_build=True,  # a file uses a few of the shapes; the others need no validator
    )


def _has_value(value: object) -> object:
    if value is None:
        raise refused("has no value", allowed="give it one, or leave the key out")
    return value


HAS_VALUE: Final = Read(_has_value)


class ScenarioShape(Shape):
    """A mapping of the scenario format: a key without a value is an error."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: object) -> None:
        """Check that every key has a value, before any other validator."""
        for field in cls.model_fields.values():
            if HAS_VALUE not in field.metadata:
                field.metadata.append(HAS_VALUE)


class ManifestShape(Shape):
    """A mapping of a Kubernetes object: null means the same as an absent key, as for the API server."""

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, value: object) -> object:
        if not isinstance(value, dict) or None not in value.values():
            return value
        known = {field.alias for field in cls.model_fields.values()}
        return {key: each for key, each in value.items() if each is not None or key not in known}


class LooseShape(ManifestShape):
    """A mapping of a Kubernetes object with more keys than these."""

    model_config = ConfigDict(extra="ignore")


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
