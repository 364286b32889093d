"""Evidence, plans, scenarios, objects and messages survive encoding and decoding."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_interface, ip_network
from typing import Any, get_args

import pytest
from drawn_scenarios import scenario_texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields
from random_evidence import cases
from recorded import World
from thoroughness import examples

from proxylab.addresses import IPAddress, IPInterface, IPNetwork
from proxylab.cluster.objects import KubeObject
from proxylab.encoding import Record, decode, encode
from proxylab.evidence.evidence import Evidence
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.protocol.messages import Request, Response, response_to
from proxylab.protocol.standing_labs import AnyRequest, FeedAnswer
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type; documents, where the type says no more."""
    return JSON if hint is Any else st.from_type(hint)


st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(Mapping, lambda hint: st.dictionaries(*map(of_type, get_args(hint)), max_size=3))
st.register_type_strategy(IPAddress, st.ip_addresses())
st.register_type_strategy(IPInterface, st.ip_addresses().map(ip_interface))
st.register_type_strategy(IPNetwork, st.ip_addresses().map(ip_network))


def records(cls: type[Record] = Record) -> Iterator[type[Record]]:
    for each in cls.__subclasses__():
        yield each
        yield from records(each)


def of_its_fields(cls: type[Record]) -> st.SearchStrategy[Record]:
    return st.builds(cls, **{each.name: st.from_type(each.type) for each in fields(cls)})


for cls in records():  # Hypothesis would take the placeholder of a default factory for a value
    st.register_type_strategy(cls, of_its_fields)

few = settings(
    max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@few
@given(cases())
def test_random_evidence(drawn: tuple[World, Evidence]) -> None:
    _, evidence = drawn
    assert decode(encode(evidence), Evidence) == evidence


# The cases of tests/golden/test_plan encode plans, too.
@pytest.mark.parametrize("hint", [Evidence, pytest.param(Plan, marks=pytest.mark.thorough), ResolvedProbe])
@few
@given(st.data())
def test_all_fields(hint: type[Any], data: st.DataObject) -> None:
    value = data.draw(st.from_type(hint))
    assert decode(encode(value), hint) == value


@pytest.mark.parametrize("hint", [AnyRequest, FeedAnswer])
@few
@given(st.data())
def test_messages(hint: Any, data: st.DataObject) -> None:
    message = data.draw(st.sampled_from(get_args(hint)).flatmap(st.from_type))
    assert decode(encode(message), hint) == message


@few
@given(st.data())
def test_answers(data: st.DataObject) -> None:
    reply = response_to(data.draw(st.sampled_from(Request.__subclasses__())))
    answered, *_ = get_args(reply)
    (answer,) = get_args(answered)
    message = Response(data.draw(st.from_type(answer)))
    assert decode(encode(message), reply) == message


# A scenario drawn from its types alone is nearly always too large; the public strategies draw realistic ones.
@few
@given(scenario_texts())
def test_scenario(text: str) -> None:
    scenario = parse_scenario(text, "drawn.lab.yaml")
    assert decode(encode(scenario), Scenario) == scenario


@few
@given(st.lists(st.one_of(*map(st.from_type, get_args(KubeObject)))).map(tuple))
def test_cluster_objects(objects: tuple[KubeObject, ...]) -> None:
    assert decode(encode(objects), tuple[KubeObject, ...]) == objects
