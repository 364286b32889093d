"""What holds for the rules of any cluster."""

import random
import re
from collections import defaultdict
from dataclasses import replace
from ipaddress import ip_address, ip_network

from hypothesis import given, settings
from hypothesis import strategies as st
from memory_loader import BUILT_IN, MemoryLoader, fresh
from thoroughness import examples as many

from lab.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    LoadBalancerIngress,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from lab.engines.embedded.iptables.held import Held, read_held
from lab.engines.embedded.iptables.render import Renderer, render
from lab.engines.embedded.iptables.restore import restore, restore_changes
from lab.engines.embedded.node import NodeFacts
from lab.engines.embedded.ports import ClusterView
from lab.engines.embedded.settings import BridgeInterface, ClusterCIDR, NodeCIDR, ProxySettings
from lab.ip import Family, IPAddress, IPNetwork, Protocol

# No deadline: how long an example takes says more about the machine than about the rules.
examples = settings(max_examples=many(20), deadline=None)

NODES = ("node-a", "node-b", "")
ZONES = ("blue", "green")
BASES = {
    Family.IPV4: {"cluster": "10.96.0.0", "pod": "10.42.0.0", "other": "198.51.100.0"},
    Family.IPV6: {"cluster": "fd00:96::", "pod": "fd00:42::", "other": "2001:db8::"},
}


def address(family: Family, kind: str, number: int) -> IPAddress:
    return ip_address(BASES[family][kind]) + number


def network(family: Family, kind: str, bits: int) -> IPNetwork:
    """The network of that kind with so many bits for hosts."""
    return ip_network(f"{BASES[family][kind]}/{(32 if family is Family.IPV4 else 128) - bits}")


policies = st.sampled_from(TrafficPolicy)


@st.composite
def endpoints(draw: st.DrawFn, family: Family) -> Endpoint:
    return Endpoint(
        addresses=(address(family, "pod", draw(st.integers(1, 40))),),
        ready=draw(st.booleans()),
        serving=draw(st.booleans()),
        terminating=draw(st.booleans()),
        node_name=draw(st.sampled_from(NODES)),
        for_zones=tuple(draw(st.sets(st.sampled_from(ZONES)))),
        for_nodes=tuple(draw(st.sets(st.sampled_from(NODES[:2])))),
    )


@st.composite
def served(draw: st.DrawFn, family: Family, number: int) -> tuple[Service, list[EndpointSlice]]:
    """A Service and its slices, of any shape that the API server lets pass."""
    kind = draw(st.sampled_from([ServiceType.CLUSTER_IP, ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER]))
    balanced = kind is ServiceType.LOAD_BALANCER
    protocols = draw(st.lists(st.sampled_from(Protocol), min_size=1, max_size=2, unique=True))
    ports = tuple(
        ServicePort(
            name=protocol.lower() if len(protocols) > 1 else "",
            protocol=protocol,
            port=80,
            target_port=8080,
            node_port=0 if kind is ServiceType.CLUSTER_IP else 30000 + number,
        )
        for protocol in protocols
    )
    service = Service(
        namespace=draw(st.sampled_from(["default", "other"])),
        name=f"service-{number}",
        type=kind,
        ports=ports,
        cluster_ips=(address(family, "cluster", number + 1),),
        ip_families=(family,),
        external_ips=(address(family, "other", number + 1),) if draw(st.booleans()) else (),
        load_balancer_ingress=(LoadBalancerIngress(ip=address(family, "other", 100 + number)),) if balanced else (),
        source_ranges=(network(family, "pod", 7),) if balanced and draw(st.booleans()) else (),
        internal_traffic_policy=draw(policies),
        external_traffic_policy=draw(policies),
        affinity_timeout=draw(st.sampled_from([None, 10800])),
    )
    slices = [
        EndpointSlice(
            namespace=service.namespace,
            name=f"{service.name}-{index}",
            service=service.name,
            address_type=family,
            ports=tuple(EndpointPort(name=port.name, protocol=port.protocol, port=8080) for port in ports),
            endpoints=tuple(members),
        )
        for index, members in enumerate(draw(st.lists(st.lists(endpoints(family), max_size=6), max_size=2)))
    ]
    return service, slices


@st.composite
def clusters(draw: st.DrawFn, family: Family) -> ClusterView:
    drawn = [draw(served(family, number)) for number in range(draw(st.integers(0, 4)))]
    return ClusterView(tuple(service for service, _ in drawn), tuple(item for _, slices in drawn for item in slices))


@st.composite
def proxies(draw: st.DrawFn) -> tuple[Family, ProxySettings, NodeFacts]:
    family = draw(st.sampled_from(Family))
    detectors = [ClusterCIDR((network(family, "pod", 8),)), ClusterCIDR(), NodeCIDR(), BridgeInterface("cni0")]
    chosen = ProxySettings(
        masquerade_all=draw(st.booleans()),
        masquerade_bit=draw(st.integers(0, 31)),
        detect_local=draw(st.sampled_from(detectors)),
        node_port_addresses=draw(st.sampled_from([(), (network(family, "pod", 7),)])),
        localhost_node_ports=draw(st.booleans()),
        conntrack_tcp_be_liberal=draw(st.booleans()),
    )
    node = NodeFacts(
        name="node-a",
        zone=draw(st.sampled_from(["", *ZONES])),
        addresses=(address(family, "pod", 1),),
        pod_cidrs=(network(family, "pod", 7),),
        interface_addresses=(address(family, "pod", 1), address(family, "other", 1)),
    )
    return family, chosen, node


worlds = proxies().flatmap(lambda proxy: st.tuples(st.just(proxy), clusters(proxy[0])))
World = tuple[tuple[Family, ProxySettings, NodeFacts], ClusterView]


def written(world: World, held: Held | None = None) -> list[str]:
    (family, chosen, node), cluster = world
    return restore(render(cluster, node, chosen, family), held or Held()).text.splitlines()


def by_table(lines: list[str]) -> dict[str, list[str]]:
    tables: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if line.startswith("*"):
            table = line[1:]
        elif line != "COMMIT":
            tables[table].append(line)
    return tables


@given(worlds, st.randoms(use_true_random=False))
@examples
def test_the_order_of_objects_makes_no_difference(world: World, rng: random.Random) -> None:
    proxy, cluster = world
    services, slices = [*cluster.services], [*cluster.slices]
    rng.shuffle(services)
    rng.shuffle(slices)
    assert written((proxy, ClusterView(tuple(services), tuple(slices)))) == written(world)


@given(worlds)
@examples
def test_every_jump_leads_to_a_chain_and_every_rule_stands_in_one(world: World) -> None:
    for table, lines in by_table(written(world)).items():
        declared = {line.split()[0][1:] for line in lines if line.startswith(":")}
        used = {line.split()[1] for line in lines if line.startswith(("-A", "-I"))}
        targets = {target for line in lines for target in re.findall(r"-j (KUBE-\S+)", line)}
        assert used <= declared | set(BUILT_IN[table])
        assert targets <= declared


@given(worlds)
@examples
def test_no_chain_is_declared_twice_or_left_unused(world: World) -> None:
    for lines in by_table(written(world)).values():
        declared = [line.split()[0][1:] for line in lines if line.startswith(":")]
        assert len(declared) == len(set(declared))
        owned = {name for name in declared if re.match(r"KUBE-(SVC|SVL|EXT|FW|SEP)-", name)}
        assert owned == {t for line in lines for t in re.findall(r"-j (KUBE-(?:SVC|SVL|EXT|FW|SEP)-\S+)", line)}


@given(worlds)
@examples
def test_every_endpoint_of_a_chain_gets_an_equal_share(world: World) -> None:
    cascades: dict[str, list[float]] = defaultdict(list)
    for line in by_table(written(world))["nat"]:
        found = re.match(r"-A (KUBE-SV[CL]-\S+) .*-j KUBE-SEP-", line)
        if found and "--rcheck" not in line:
            probability = re.search(r"--probability (\S+)", line)
            cascades[found[1]].append(float(probability[1]) if probability else 1.0)
    for chain, probabilities in cascades.items():
        left = 1.0
        for probability in probabilities:
            assert abs(left * probability - 1 / len(probabilities)) < 1e-8, chain
            left *= 1 - probability
        assert left == 0.0


@given(worlds)
@examples
def test_node_ports_come_last_in_kube_services(world: World) -> None:
    rules = [line for line in by_table(written(world))["nat"] if line.startswith("-A KUBE-SERVICES ")]
    targets = [line.rsplit(" ", 1)[1] for line in rules]
    assert targets[-1] == "KUBE-NODEPORTS"
    assert sorted(targets, key=lambda target: target == "KUBE-NODEPORTS") == targets


@given(st.lists(worlds, min_size=1, max_size=4))
@examples
def test_a_load_after_any_others_leaves_what_a_first_load_leaves(history: list[World]) -> None:
    """Nothing of former clusters stays, and the memory of what the kernel holds agrees with what it holds."""
    family = history[0][0][0]
    one_family = [world for world in history if world[0][0] is family]
    tables, held = fresh(), Held()
    for (_, chosen, node), cluster in one_family:
        ruleset = render(cluster, node, chosen, family)
        tables, held = MemoryLoader._loaded(tables, restore(ruleset, held).text), held.after(ruleset)
    assert {(chain.table.value, chain.name) for chain in held.chains} == {
        (table, chain) for table, chains in tables.items() for chain in chains if chain not in BUILT_IN[table]
    }
    (_, chosen, node), cluster = one_family[-1]
    direct = restore(render(cluster, node, chosen, family), Held())
    alone = MemoryLoader._loaded(fresh(), direct.text)
    if "localnet" not in str(alone):
        tables["filter"].pop("KUBE-FIREWALL"), alone["filter"].pop("KUBE-FIREWALL")
    assert tables == alone


@given(worlds)
@examples
def test_what_was_loaded_is_read_back(world: World) -> None:
    (family, chosen, node), cluster = world
    ruleset = render(cluster, node, chosen, family)
    lines = []
    for table, chains in MemoryLoader._loaded(fresh(), restore(ruleset, Held()).text).items():
        lines.append(f"*{table}")
        lines += [f":{chain} {'ACCEPT' if chain in BUILT_IN[table] else '-'} [0:0]" for chain in chains]
        lines += [f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules]
    assert read_held("\n".join(lines)) == Held().after(ruleset)


@given(proxies(), st.data())
@examples
def test_a_partial_sync_after_any_changes_equals_a_full_one(
    proxy: tuple[Family, ProxySettings, NodeFacts], data: st.DataObject
) -> None:
    """Each cluster is an edit of the one before, as objects change one at a time; now and then the node changes too."""
    family, chosen, node = proxy
    cluster = data.draw(clusters(family))
    renderer = Renderer(family, chosen)
    loaded = renderer.render(cluster, node)
    tables = MemoryLoader._loaded(fresh(), restore(loaded, Held()).text)
    for _ in range(data.draw(st.integers(1, 5))):
        cluster = edited(cluster, data.draw(clusters(family)), data)
        node = replace(node, zone=data.draw(st.sampled_from([node.zone, *ZONES])))
        ruleset = renderer.render(cluster, node)
        assert ruleset == render(cluster, node, chosen, family)
        tables = MemoryLoader._loaded(tables, restore_changes(ruleset, loaded).text)
        loaded = ruleset
    assert tables == MemoryLoader._loaded(fresh(), restore(loaded, Held()).text)


def edited(cluster: ClusterView, other: ClusterView, data: st.DataObject) -> ClusterView:
    """Some objects of the one, some of the other; where both have one of a name, either."""
    services = {service.key: service for service in cluster.services}
    slices = {item.key: item for item in cluster.slices}
    for objects, theirs in ((services, other.services), (slices, other.slices)):
        for thing in theirs:
            if data.draw(st.booleans()):
                objects[thing.key] = thing
        for key in list(objects):
            if data.draw(st.integers(0, 3)) == 0:
                del objects[key]
    return ClusterView(tuple(services.values()), tuple(slices.values()))
