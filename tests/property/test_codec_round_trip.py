"""Every value of the lab's types survives encoding and decoding."""

from collections.abc import Mapping
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from proxylab.cluster.objects import KubeObject
from proxylab.codec import decode, dumps, encode, loads
from proxylab.evidence.evidence import Evidence
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario
from proxylab.testing.scenarios import scenario_texts

st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(Mapping, lambda hint: st.dictionaries(*map(st.from_type, get_args(hint)), max_size=3))


@settings(max_examples=examples(10), deadline=None)
@given(st.from_type(Evidence))
def test_evidence(evidence: Evidence) -> None:
    assert loads(dumps(evidence, Evidence), Evidence) == evidence


@settings(max_examples=examples(5), deadline=None)
@given(st.from_type(Plan))
def test_plan(plan: Plan) -> None:
    assert loads(dumps(plan, Plan), Plan) == plan


@settings(max_examples=examples(10), deadline=None)
@given(st.from_type(ResolvedProbe))
def test_errand(resolved: ResolvedProbe) -> None:
    assert loads(dumps(resolved, ResolvedProbe), ResolvedProbe) == resolved


# A scenario drawn from its types alone is nearly always too large; the public strategies draw realistic ones.
@settings(max_examples=examples(10), deadline=None)
@given(scenario_texts())
def test_scenario(text: str) -> None:
    scenario = parse_scenario(text, "drawn.lab.yaml", to_run=False)
    assert loads(dumps(scenario, Scenario), Scenario) == scenario


@settings(max_examples=examples(10), deadline=None)
@given(st.lists(st.one_of(*map(st.from_type, get_args(KubeObject)))).map(tuple))
def test_cluster_objects(objects: tuple[KubeObject, ...]) -> None:
    hint = tuple[KubeObject, ...]
    assert loads(dumps(objects, hint), hint) == objects
    assert decode(encode(objects, hint), hint) == objects
