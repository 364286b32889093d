"""Single mutants of objects with a scenario that notices each: those of every mode, and what is said of one."""

from typing import Final

from sandboxed import ROOT

from proxylab.engines.engine_names import mode_of, version_of
from proxylab.features.mutate.runs import MutantRuns, object_mutants_of, with_objects
from proxylab.mutate.objects import ObjectMutation
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario

__all__ = ["IN_EVERY_MODE", "judgement_of"]

IN_EVERY_MODE: Final = (
    ("steps/an-endpoint-slice-is-deleted", "later events of EndpointSlice", "DELETED withheld"),
    ("steps/an-endpoint-slice-is-deleted", "later events of EndpointSlice", "DELETED late"),
    ("affinity/at-each-of-two-addresses", "Service.affinityTimeout of the last external IP", "left out"),
    ("affinity/at-each-of-two-addresses", "Service.affinityTimeout of the last ingress address", "left out"),
    ("affinity/at-each-of-two-addresses", "Service.loadBalancerIngress", "without the first"),
    ("affinity/at-each-of-two-addresses", "Service.loadBalancerIngress", "without the last"),
    ("affinity/at-each-of-two-addresses", "Service.externalIPs", "without the first"),
    ("affinity/at-each-of-two-addresses", "Service.externalIPs", "without the last"),
)
"""The scenarios use IPv4 alone, so that mode userspace, which serves one family, notices as the others do."""


def judgement_of(scenario: str, mutation: ObjectMutation, engine: str, runs: MutantRuns) -> str:
    """What the first case of a scenario says of a mutation; empty if it passes."""
    file = ROOT / f"scenarios/{scenario}.lab.yaml"
    (each, *_) = cases(load_scenario(file), mode_of(engine), version_of(engine))
    case = with_objects(each)
    assert runs.baseline(case.case, lambda _what: None).trouble == ""
    (mutant,) = (
        each
        for each in object_mutants_of([case], engine)
        if (each.rule_class, each.mutation) == (mutation.where, mutation.change)
    )
    noticed = runs.settled(mutant, [case], lambda _what: None).noticed
    return "" if noticed is None else noticed.judgement
