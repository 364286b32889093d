"""The cluster of a benchmark: its objects, its lab, and how much room there is."""

from ipaddress import IPv4Network, ip_address

import pytest

from proxylab.cluster.objects import Service
from proxylab.features.bench.large_cluster import (
    CLIENT,
    MOST_ENDPOINTS,
    NODE,
    LargeCluster,
    scenario_for,
    servers_for,
    spaced,
)
from proxylab.plan.assembly import assemble

CLUSTER = LargeCluster(IPv4Network("10.96.0.0/16"), 7373)


def test_services_have_addresses_of_their_own_within_the_network() -> None:
    services = [CLUSTER.service(each) for each in (0, 1, 9_999, CLUSTER.most - 1)]
    addresses = [each.cluster_ips[0] for each in services]
    assert len({*addresses}) == len({each.name for each in services}) == 4
    assert all(each in CLUSTER.network for each in addresses)
    assert addresses[-1] != CLUSTER.network.broadcast_address
    with pytest.raises(IndexError):
        CLUSTER.service(CLUSTER.most + 1)


def test_a_slice_belongs_to_its_service() -> None:
    found = CLUSTER.slice(7, [(ip_address("10.244.0.2"), NODE), (ip_address("10.244.0.3"), NODE)])  # type: ignore[list-item]
    assert found.service == CLUSTER.service(7).name
    assert [each.port for each in found.ports] == [7373]
    assert [str(each.addresses[0]) for each in found.endpoints] == ["10.244.0.2", "10.244.0.3"]


@pytest.mark.parametrize("endpoints", [1, 2, MOST_ENDPOINTS])
def test_the_lab_has_a_client_and_both_halves_of_the_servers_and_no_services(endpoints: int) -> None:
    assembly = assemble(scenario_for(endpoints))
    names = [each.name for each in assembly.plan.pods]
    assert sorted(names) == sorted([CLIENT, *servers_for(endpoints)])
    assert {each.name for each in assembly.scenario.nodes} == {NODE}
    assert not any(isinstance(each, Service) and each.selector for each in assembly.objects)
    listening = [each for namespace in assembly.plan.namespaces for each in namespace.listeners]
    assert listening == [], "the program that times connections has all ports for itself"


@pytest.mark.parametrize(
    ("count", "most", "wanted"),
    [(10, 2, [4, 9]), (3, 100, [0, 1, 2]), (1, 5, [0]), (100, 4, [24, 49, 74, 99])],
)
def test_some_are_evenly_spaced_and_the_last_is_among_them(count: int, most: int, wanted: list[int]) -> None:
    assert [*spaced(count, most)] == wanted
