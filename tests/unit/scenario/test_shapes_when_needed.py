"""What of the shapes is made for a file, and what is not."""

import pytest
from pydantic import Field, ValidationError

from lab.scenario.schema.base import ScenarioShape, Seldom, no_entries


def outer_and_inner() -> tuple[type[ScenarioShape], type[ScenarioShape]]:
    class Inner(ScenarioShape):
        number: int = Field(description="A number.")

    class Outer(ScenarioShape):
        text: str = Field(default="", description="A text.")
        inner: Seldom[Inner] | None = Field(default=None, description="A mapping.")
        by_name: dict[str, Seldom[Inner]] = Field(default_factory=no_entries, description="Mappings.")

    return Outer, Inner


def test_a_shape_that_few_files_have_costs_the_others_nothing() -> None:
    outer, inner = outer_and_inner()
    outer.model_validate({"text": "a"})
    assert not inner.__pydantic_complete__
    outer.model_validate({"inner": {"number": 1}})
    assert inner.__pydantic_complete__


def test_its_mistakes_stand_among_all_others_at_their_places() -> None:
    outer, _ = outer_and_inner()
    with pytest.raises(ValidationError) as told:
        outer.model_validate({"text": 1, "inner": {"numbr": 2}, "byName": {"a": {"number": "3"}, "b": []}})
    assert sorted((each["type"], each["loc"]) for each in told.value.errors()) == [
        ("extra_forbidden", ("inner", "numbr")),
        ("int_type", ("byName", "a", "number")),
        ("missing", ("inner", "number")),
        ("model_type", ("byName", "b")),
        ("string_type", ("text",)),
    ]


def test_an_editor_hears_of_it_by_reference() -> None:
    outer, inner = outer_and_inner()
    schema = outer.model_json_schema()
    assert schema["properties"]["byName"]["additionalProperties"] == {"$ref": f"#/$defs/{inner.__name__}"}
