"""Defects in the table of mode nftables, and the probes of the scenarios that each defect turns red."""

from collections.abc import Iterator

import pytest
from mutated_labs import MutatedLabs, name_of
from mutation import Mutation
from sandboxed import ROOT

from proxylab.verdict.model import Judgement

FIXED = "proxylab.engines.embedded.nftables.fixed"
SERVICE = "proxylab.engines.embedded.nftables.service"


def without(chain: str) -> str:
    """The fixed rules but for those of a chain."""
    return f"(lambda rules: lambda *a, **k: (each for each in rules(*a, **k) if each[0] != {chain!r}))(module._rules)"


DEFECTS = {
    "no masquerading": (
        FIXED,
        "_rules",
        without("masquerading"),
        "masquerade/all",
        {
            "masqueradeAll hides a pod from backends on its own node and on another",
        },
    ),
    "no hairpin connections": (
        SERVICE,
        "_hairpins",
        "lambda endpoints, protocol: {}",
        "network/hairpin",
        {"ClusterIP from a pod to itself is delivered and masqueraded"},
    ),
    "unused ports of cluster IPs are left alone": (
        FIXED,
        "_rules",
        without("cluster-ips-check"),
        "untranslated/unused-port-of-a-cluster-ip",
        {
            "UDP from a pod to a TCP-only ClusterIP port is untranslated, or rejected",
            "UDP from a node to a TCP-only ClusterIP port is untranslated, or rejected",
            "unassigned ClusterIP is untranslated, or dropped in nftables",
            "unassigned IPv6 ClusterIP is untranslated, or dropped in nftables",
            "unused ClusterIP port from a node is untranslated, or rejected in nftables",
            "unused ClusterIP port is untranslated, or rejected in nftables",
            "unused IPv6 ClusterIP port from a node is untranslated, or rejected in nftables",
            "unused IPv6 ClusterIP port is untranslated, or rejected in nftables",
        },
    ),
    "no lookup of source ranges": (
        FIXED,
        "_rules",
        without("firewall-check"),
        "loadbalancer/source-ranges",
        {
            "loadBalancerSourceRanges drops a node outside the range",
            "loadBalancerSourceRanges drops a pod outside the range",
            "loadBalancerSourceRanges drops an outside host outside the range",
        },
    ),
    # The cluster IP is rejected all the same: none of its ports has an endpoint.
    "no lookup of Services without endpoints": (
        FIXED,
        "_rules",
        without("service-endpoints-check"),
        "rejections/at-every-frontend",
        {
            "external IP without endpoints rejects a node in nftables, but not in iptables",
            "external IP without endpoints rejects a pod",
            "external IP without endpoints rejects an outside host",
            "load balancer IP without endpoints rejects a pod on the pod's own node",
            "load balancer IP without endpoints rejects an outside host",
        },
    ),
    "no memory of clients": (
        SERVICE,
        "_remembering",
        "(lambda rules: lambda *a: list(rules(*a))[-1:])(module._remembering)",
        "affinity/client-ip",
        {
            "ClientIP affinity sends all connections of a pod to one endpoint",
            "ClientIP affinity with policy Local sends an outside host to one local endpoint",
        },
    ),
}


@pytest.fixture(scope="module")
def mutated_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutatedLabs]:
    labs = MutatedLabs(tmp_path_factory.mktemp("mutated-tables"), "embedded/nftables")
    yield labs
    labs.close()


@pytest.mark.parametrize("defect", DEFECTS)
def test_what_needs_a_rule_turns_red_without_it(defect: str, mutated_tables: MutatedLabs) -> None:
    module, attribute, becomes, file, red = DEFECTS[defect]
    path = ROOT / "scenarios" / f"{file}.lab.yaml"
    runs = mutated_tables.run([path], Mutation(module, attribute, becomes))
    seen = {name_of(each) for _, verdicts in runs for each in verdicts if each.overall is not Judgement.PASS}
    assert seen == red
