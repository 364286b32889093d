"""Networks around the addresses that a cluster has."""

from ipaddress import ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from proxylab.addresses import Family
from proxylab.features.import_.networks import Networks, find_networks

FOUR = [Family.IPV4]


def found(nodes: list[str], pods: list[str], services: list[str], number_of_nodes: int = 3) -> Networks:
    return find_networks(
        FOUR,
        nodes=list(map(ip_address, nodes)),
        pods=[ip_network(each) if "/" in each else ip_address(each) for each in pods],
        services=list(map(ip_address, services)),
        number_of_nodes=number_of_nodes,
    )


def test_those_of_kind() -> None:
    kind = found(["172.18.0.2", "172.18.0.4"], ["10.244.0.0/24", "10.244.2.9"], ["10.96.0.1", "10.96.0.10"])
    assert list(map(str, (*kind.pods, *kind.services, *kind.nodes))) == [
        "10.244.0.0/16",
        "10.96.0.0/16",
        "172.18.0.0/24",
    ]
    assert kind.pods_stay
    assert kind.nodes_stay


def test_every_node_has_its_part_of_the_pods_network() -> None:
    assert found(["10.0.0.2"], ["10.244.0.0/24"], ["10.96.0.1"], number_of_nodes=300).pods[0].prefixlen <= 15


def test_a_network_stays_as_narrow_as_its_neighbours_make_it() -> None:
    close = found(["10.0.0.2"], ["10.43.0.0/24"], ["10.43.128.1", "10.43.128.10"])
    assert list(map(str, (*close.pods, *close.services))) == ["10.43.0.0/17", "10.43.128.0/17"]


def test_the_gateway_is_no_other_address() -> None:
    assert str(found(["192.168.1.1", "192.168.1.2"], [], ["10.96.0.1"]).nodes[0]) == "192.168.0.0/23"


def test_pods_among_nodes_keep_their_addresses_in_the_network_of_both() -> None:
    vpc = found(["10.0.8.200", "10.0.9.200"], ["10.0.8.17", "10.0.12.3"], ["172.20.0.1"])
    assert vpc.pods_stay
    assert vpc.nodes_stay
    assert str(vpc.nodes[0]) == "10.0.8.0/21"
    assert not vpc.pods[0].overlaps(vpc.nodes[0])


def test_nodes_without_addresses_get_no_network_of_pods() -> None:
    nameless = found([], ["10.244.0.2", "10.244.1.3"], ["10.96.0.1"])
    assert nameless.pods_stay
    assert [*map(str, nameless.pods)] == ["10.244.0.0/16"]
    assert [*map(str, nameless.nodes)] == ["172.18.0.0/16"]


def test_pods_with_the_address_of_a_node_get_other_addresses() -> None:
    assert not found(["10.0.8.200"], ["10.0.8.200"], ["172.20.0.1"]).pods_stay


def test_nodes_that_no_network_holds_alone_get_other_addresses() -> None:
    far = found(["10.0.0.5", "10.240.0.7"], ["10.244.0.0/24"], ["10.96.0.1"])
    assert not far.nodes_stay
    assert far.pods_stay


@given(
    st.lists(st.integers(0x0A000002, 0x0AFFFFFE), min_size=1, max_size=5, unique=True),
    st.lists(st.integers(0x0A000002, 0x0AFFFFFE), max_size=5, unique=True),
    st.lists(st.integers(0x0A000002, 0x0AFFFFFE), min_size=1, max_size=5, unique=True),
)
def test_what_stays_is_inside_and_nothing_overlaps(nodes: list[int], pods: list[int], services: list[int]) -> None:
    networks = find_networks(
        FOUR,
        nodes=list(map(ip_address, nodes)),
        pods=list(map(ip_address, pods)),
        services=list(map(ip_address, services)),
        number_of_nodes=len(nodes),
    )
    (of_pods,), (of_services,), (of_nodes,) = networks.pods, networks.services, networks.nodes
    assert all(ip_address(each) in of_services for each in services)
    assert not networks.pods_stay or all(ip_address(each) in of_pods or ip_address(each) in of_nodes for each in pods)
    assert not networks.nodes_stay or all(ip_address(each) in of_nodes for each in nodes)
    assert not of_pods.overlaps(of_nodes)
    assert not of_pods.overlaps(of_services)
    assert not of_nodes.overlaps(of_services)
