"""Every key of the format that is misspelled is refused, and the right one is named."""

from typing import Any

import pytest

from proxylab.scenario import keys
from proxylab.scenario.configuration import KubeProxyManifest
from proxylab.scenario.document import Document, Location, Problems
from proxylab.scenario.keys import Declared, Manifest, WrittenAs, declared_keys, other_keys
from proxylab.scenario.reading import read
from proxylab.scenario.services import ServiceManifest
from proxylab.scenario.spec import ScenarioDocument
from proxylab.scenario.words import Position
from proxylab.scenario.workloads import EndpointSliceManifest


def records(root: type[Declared]) -> set[type[Declared]]:
    """A record and every record that can stand in it."""
    found: set[type[Declared]] = set()
    waiting: list[Any] = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, type) and issubclass(each, Declared) and each not in found:
            found.add(each)
            others = other_keys(each)
            waiting += [*(key.hint for key in declared_keys(each)), *([others.hint] if others else [])]
        waiting += getattr(each, "__args__", ())
        waiting += [each.__origin__] if hasattr(each, "__metadata__") else []
        waiting += [form.written for form in getattr(each, "__metadata__", ()) if isinstance(form, WrittenAs)]
    return found


ROOTS = (ScenarioDocument, ServiceManifest, EndpointSliceManifest, KubeProxyManifest)
STRICT = {
    each
    for root in ROOTS
    for each in records(root)
    if not other_keys(each) and not (issubclass(each, Manifest) and each.loose)
}
BY_NAME = {f"{each.__module__.rpartition('.')[2]}.{each.__name__}": each for each in STRICT}
KEYS = sorted(
    (name, alias)
    for name, each in BY_NAME.items()
    for alias in (
        *(key.alias for key in declared_keys(each)),
        *(each.without_effect if issubclass(each, Manifest) else ()),
    )
)


def test_the_walk_finds_the_records_of_all_depths() -> None:
    assert len(BY_NAME) == len(STRICT)
    assert {
        "spec.ScenarioDocument",
        "probes.Send",
        "steps.Until",
        "expect.NodeDevice",
        "services._ServicePort",
    } <= BY_NAME.keys()
    assert len(KEYS) > 200


def test_a_reader_of_the_declarations_learns_in_which_module_each_key_is() -> None:
    modules = {each.__module__.rpartition(".")[2] for root in ROOTS for each in records(root)}
    assert len(modules) > 10
    assert [module for module in sorted(modules) if f"``{module}``" not in (keys.__doc__ or "")] == []


@pytest.mark.parametrize(("name", "key"), KEYS)
def test_a_misspelled_key_is_recognized(name: str, key: str) -> None:
    wrong = key[:-1] + key[-1] * 2 if len(key) > 2 else key.upper() + "x"
    value = {wrong: None}
    problems = Problems()
    document = Document(value, Position("f", 1, 1), {})
    assert read(BY_NAME[name], Location(document), problems) is None
    with pytest.raises(Exception, match="unknown key") as caught:
        problems.raise_any()
    (line,) = [line for line in str(caught.value).splitlines() if "unknown key" in line]
    assert f"did you mean {key!r}?" in line
