"""The schema itself: what is generated from it later needs a word on every key."""

import json
from collections.abc import Iterator

import pytest

from proxylab.scenario import keys
from proxylab.scenario.json_schema import json_schema
from proxylab.scenario.reading import Shape, shape_of
from proxylab.scenario.services import ServiceManifest
from proxylab.scenario.spec import ScenarioDocument

json_schema()  # makes the shapes of the declared records


def shapes(shape: type[Shape] = Shape) -> Iterator[type[Shape]]:
    for inner in shape.__subclasses__():
        yield inner
        yield from shapes(inner)


@pytest.mark.parametrize("shape", list(shapes()), ids=lambda shape: shape.__name__)
def test_every_shape_and_every_key_is_described(shape: type[Shape]) -> None:
    assert (shape.__doc__ or "").strip()
    for name, field in shape.model_fields.items():
        assert field.description, f"{shape.__name__}.{name}"
        assert field.description.endswith("."), f"{shape.__name__}.{name}"


def test_a_reader_of_keys_learns_where_each_key_is_declared() -> None:
    modules = {shape.__module__.rpartition(".")[2] for shape in shapes() if shape.model_fields}
    assert len(modules) > 10
    assert [module for module in sorted(modules) if f"``{module}``" not in (keys.__doc__ or "")] == []


@pytest.mark.parametrize("shape", [shape_of(ScenarioDocument), shape_of(ServiceManifest)])
def test_a_json_schema_can_be_made(shape: type[Shape]) -> None:
    assert json.loads(json.dumps(shape.model_json_schema()))["additionalProperties"] is False
