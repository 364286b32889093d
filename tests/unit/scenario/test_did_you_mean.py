"""Every key of the format that is misspelled is refused, and the right one is named."""

from typing import Any

import pytest
from pydantic import ValidationError

from proxylab.scenario.configuration import KubeProxyManifest
from proxylab.scenario.document import Document, Location
from proxylab.scenario.keys import Declared, Form
from proxylab.scenario.model import Position
from proxylab.scenario.problems import Problems
from proxylab.scenario.reading import read_as, shape_of
from proxylab.scenario.schema.base import Shape
from proxylab.scenario.schema.scenario import ScenarioDocument
from proxylab.scenario.services import ServiceManifest
from proxylab.scenario.validation import validated
from proxylab.scenario.workloads import EndpointSliceManifest


def shapes(shape: type[Shape]) -> set[type[Shape]]:
    """A shape and every shape that can stand in it."""
    found: set[type[Shape]] = set()
    waiting: list[Any] = [shape]
    while waiting:
        each = waiting.pop()
        if isinstance(each, type) and issubclass(each, Declared):
            each = shape_of(each)
        if isinstance(each, type) and issubclass(each, Shape) and each not in found:
            found.add(each)
            waiting += [field.annotation for field in each.model_fields.values()]
        waiting += getattr(each, "__args__", ())
        waiting += [each.__origin__] if hasattr(each, "__metadata__") else []
        waiting += [read_as(form.written) for form in getattr(each, "__metadata__", ()) if isinstance(form, Form)]
    return found


ROOTS = (ScenarioDocument, *map(shape_of, (ServiceManifest, EndpointSliceManifest, KubeProxyManifest)))
STRICT = {
    each
    for root in ROOTS
    for each in shapes(root)
    if each.model_config["extra"] == "forbid"
}  # fmt: skip
BY_NAME = {f"{shape.__module__.rpartition('.')[2]}.{shape.__name__}": shape for shape in STRICT}
KEYS = sorted((name, str(field.alias)) for name, shape in BY_NAME.items() for field in shape.model_fields.values())


def test_the_walk_finds_the_shapes_of_all_depths() -> None:
    assert len(BY_NAME) == len(STRICT)
    assert {
        "scenario.ScenarioDocument",
        "probe.SendShape",
        "steps.UntilShape",
        "expect.NodeDeviceShape",
        "services.ServicePortShape",
    } <= BY_NAME.keys()
    assert len(KEYS) > 200


@pytest.mark.parametrize(("name", "key"), KEYS)
def test_a_misspelled_key_is_recognized(name: str, key: str) -> None:
    wrong = key[:-1] + key[-1] * 2 if len(key) > 2 else key.upper() + "x"
    value = {wrong: None}
    problems = Problems()
    document = Document(value, Position("f", 1, 1), {})
    assert validated(BY_NAME[name], Location(document), problems) is None
    with pytest.raises(Exception, match="unknown key") as caught:
        problems.raise_any()
    (line,) = [line for line in str(caught.value).splitlines() if "unknown key" in line]
    assert f"did you mean {key!r}?" in line


def test_pydantic_refuses_what_we_refuse() -> None:
    with pytest.raises(ValidationError):
        ScenarioDocument.model_validate({"spce": {}})
