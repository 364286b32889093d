"""Invariants of the plan of every scenario."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from scenario_cases import DUAL, IPV6, host, node, pods, scenario
from thoroughness import examples

from proxylab.plan.forwarding import path
from proxylab.plan.model import Plan, Role
from proxylab.plan.topology import draw
from proxylab.scenario.model import Scenario

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,38}[a-z0-9])?", fullmatch=True).filter(
    lambda name: name not in {"router", "fabric"}
)


@st.composite
def scenarios(draw_: st.DrawFn) -> Scenario:
    """Up to four nodes, eight pods and three hosts on any network, with any names that Kubernetes allows.

    With or without the lab's own name server.
    """
    names = draw_(st.lists(NAMES, unique=True, min_size=1, max_size=12))
    nodes, rest = names[:4], names[4:]
    hosts = rest[:3] if draw_(st.booleans()) else []
    singles = rest[len(hosts) :]
    groups = [pods(name, draw_(st.sampled_from(nodes))) for name in singles]
    taken = {*names}
    replicas = draw_(st.integers(1, 5))
    if not {f"echo-{number}" for number in range(1, replicas + 1)} & taken:
        groups.append(pods("echo", *nodes, replicas=replicas))
    network = {
        **draw_(st.sampled_from([{}, IPV6, DUAL])),
        "pod_network": draw_(st.sampled_from(["ptp", "ptp-unnumbered", "bridge"])),
        "inter_node": draw_(st.sampled_from(["host-gw", "vxlan"])),
    }
    drawn = scenario([node(name) for name in nodes], groups, [host(name) for name in hosts], network=network)
    return replace(drawn, dns=draw_(st.booleans()))


PLANS = scenarios().map(draw)
CHECK = settings(max_examples=examples(25), deadline=None)


@CHECK
@given(PLANS)
def test_indexes_and_macs_are_unique_and_links_have_two_ends(plan: Plan) -> None:
    ends = [end for link in plan.links for end in link.ends]
    tops = [top for namespace in plan.namespaces for top in (*namespace.bridges, *namespace.vxlans)]
    for values in ([device.index for device in (*ends, *tops)], [device.mac for device in (*ends, *tops)]):
        assert Counter(values).most_common(1)[0][1] == 1
    assert all(link.first.namespace != link.second.namespace for link in plan.links)
    assert all(int(end.mac[:2], 16) & 3 == 2 for end in ends)  # locally administered, unicast
    assert min(end.index for end in ends) > 1


@CHECK
@given(PLANS)
def test_device_names_fit_and_are_unique_in_their_namespace(plan: Plan) -> None:
    devices = [(end.namespace, end.device) for link in plan.links for end in link.ends]
    devices += [(each.name, top.device) for each in plan.namespaces for top in (*each.bridges, *each.vxlans)]
    assert len(set(devices)) == len(devices)
    assert all(0 < len(device.encode()) <= 15 for _, device in devices)
    assert not {device for _, device in devices} & {"lo", "all", "default"}


@CHECK
@given(PLANS)
def test_everything_named_is_there(plan: Plan) -> None:
    names = [namespace.name for namespace in plan.namespaces]
    assert len(set(names)) == len(names)
    for namespace in plan.namespaces:
        devices = {end.device for link in plan.links for end in link.ends if end.namespace == namespace.name}
        devices |= {top.device for top in (*namespace.bridges, *namespace.vxlans)}
        used = [*namespace.addresses, *namespace.routes, *namespace.neighbours, *namespace.forwarding]
        assert {each.device for each in used} <= devices
    for link in plan.links:
        for end in link.ends:
            masters = {bridge.device for bridge in plan.namespace(end.namespace).bridges}
            assert end.master is None or end.master in masters


@CHECK
@given(PLANS)
def test_gateways_are_on_the_link(plan: Plan) -> None:
    for namespace in plan.namespaces:
        for route in namespace.routes:
            if route.via is not None and not route.onlink:
                on_link = [
                    other.destination
                    for other in namespace.routes
                    if other.via is None and other.device == route.device
                ]
                on_link += [each.interface.network for each in namespace.addresses if each.device == route.device]
                assert any(route.via in network for network in on_link)


@CHECK
@given(PLANS)
def test_neighbours_are_those_at_the_other_end(plan: Plan) -> None:
    for namespace in plan.namespaces:
        for neighbour in namespace.neighbours:
            tunnels = [(each.name, top) for each in plan.namespaces for top in each.vxlans if top.mac == neighbour.mac]
            if tunnels:
                netns_name, device = tunnels[0][0], tunnels[0][1].device
                assert (neighbour.device, neighbour.mac) in {(each.device, each.mac) for each in namespace.forwarding}
            else:
                peer = plan.peer(namespace.name, neighbour.device)
                assert neighbour.mac == peer.mac
                netns_name, device = peer.namespace, peer.device
            addresses = plan.namespace(netns_name).addresses
            assert any(each.device == device and each.interface.ip == neighbour.address for each in addresses)


@CHECK
@given(PLANS)
def test_addresses_reach_each_other_and_pods_always_through_their_nodes(plan: Plan) -> None:
    by_role = {role: [each for each in plan.namespaces if each.role is role] for role in Role}
    own = [
        (each.name, address.interface.ip)
        for role in (Role.POD, Role.NODE, Role.HOST)
        for each in by_role[role]
        for address in each.addresses
        if address.device == "eth0" and not address.interface.ip.is_link_local
    ]
    assert len({address for _, address in own}) == len(own)
    bridged = any(bridge.device == "cni0" for node in by_role[Role.NODE] for bridge in node.bridges)
    for start, source in own:
        for end, address in own:
            if source.version != address.version:
                continue
            hops = [hop.into.namespace for hop in path(plan, start, address)]
            assert (hops[-1] if hops else start) == end
            if start != end and Role.POD in (plan.namespace(start).role, plan.namespace(end).role) and not bridged:
                passed = {start, *hops}
                assert any(plan.namespace(name).role is Role.NODE for name in passed)


@CHECK
@given(PLANS)
def test_addresses_stand_in_their_networks(plan: Plan) -> None:
    networks = {Role.POD: DUAL["pod_cidrs"], Role.HOST: DUAL["outside_cidrs"], Role.NODE: DUAL["node_cidrs"]}
    for namespace in plan.namespaces:
        for address in namespace.addresses:
            if address.interface.ip.is_link_local:
                assert address.interface.version == 6
            elif address.device == "eth0":
                assert any(address.interface.ip in network for network in networks[namespace.role])
            elif namespace.role is Role.NODE:
                assert any(address.interface.ip in network for network in DUAL["pod_cidrs"])


@CHECK
@given(scenarios())
def test_same_scenario_same_plan(case: Scenario) -> None:
    assert draw(case) == draw(case)
