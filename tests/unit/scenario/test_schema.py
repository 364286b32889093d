"""The schema itself: what is generated from it later needs a word on every key."""

import json
from collections.abc import Iterator

import pytest

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


@pytest.mark.parametrize("shape", [shape_of(ScenarioDocument), shape_of(ServiceManifest)])
def test_a_json_schema_can_be_made(shape: type[Shape]) -> None:
    assert json.loads(json.dumps(shape.model_json_schema()))["additionalProperties"] is False
