"""Which mutants of objects there are: every field that the lab reads has one, and what they make of an object."""

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import fields, replace
from scenario_index import SCENARIOS

from proxylab.addresses import Family, Protocol
from proxylab.client.rendered_rules import rendered_rules
from proxylab.cluster.configuration import (
    ConntrackTimeouts,
    DetectLocalMode,
    IpvsConfiguration,
    Mode,
    NftablesConfiguration,
    ProxyConfiguration,
    Scheduler,
    SocketAddress,
)
from proxylab.cluster.objects import (
    HEADLESS_LABEL,
    SERVICE_PROXY_NAME_LABEL,
    TO_BE_DELETED,
    ZONE_LABEL,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    KubeObject,
    LoadBalancerIngress,
    Node,
    Service,
    ServiceCIDR,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from proxylab.cluster.store import Store
from proxylab.encoding import decode, encode
from proxylab.engines.embedded.ports import ClusterView, PortTracker
from proxylab.engines.embedded.userspace.writer import served_ports, tracked_ports
from proxylab.engines.modes import MODES
from proxylab.errors import InternalError
from proxylab.features.mutate.equivalents import proof_of_mutation
from proxylab.mutate.fields import key_of
from proxylab.mutate.objects import CONFIGURATION, ObjectMutation, images, mutated_configuration, mutations_of
from proxylab.plan.assembly import assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario

SERVICE = Service(
    namespace="shop",
    name="web",
    labels={SERVICE_PROXY_NAME_LABEL: "other"},
    annotations={"example.org/key": "value"},
    type=ServiceType.LOAD_BALANCER,
    selector={"example.org/app": "web"},
    ports=(
        ServicePort(name="http", port=80, target_port="http", node_port=30080),
        ServicePort(name="dns", protocol=Protocol.UDP, port=53, target_port=5353, node_port=30053),
    ),
    headless=True,
    cluster_ips=(ip_address("172.30.0.1"), ip_address("fd00:30::1")),
    ip_families=(Family.IPV4, Family.IPV6),
    ip_family_policy="RequireDualStack",
    external_ips=(ip_address("198.51.100.1"), ip_address("198.51.100.2")),
    load_balancer_ingress=(
        LoadBalancerIngress(ip=ip_address("203.0.113.1"), hostname="a.example.org", ip_mode="Proxy"),
        LoadBalancerIngress(ip=ip_address("203.0.113.2")),
    ),
    source_ranges=(ip_network("192.0.2.0/24"), ip_network("10.0.0.0/8")),
    internal_traffic_policy=TrafficPolicy.LOCAL,
    external_traffic_policy=TrafficPolicy.LOCAL,
    health_check_node_port=32000,
    affinity_timeout=10800,
    publish_not_ready_addresses=True,
    traffic_distribution="PreferClose",
    allocate_node_ports=False,
    external_name="example.org",
    stored={"10.0.0.0/8": "010.0.0.0/8"},
)
SLICE = EndpointSlice(
    namespace="shop",
    name="web-1",
    service="web",
    labels={HEADLESS_LABEL: ""},
    address_type=Family.IPV4,
    ports=(EndpointPort(name="http", port=8080), EndpointPort(name="dns", protocol=Protocol.UDP, port=5353)),
    endpoints=(
        Endpoint(
            addresses=(ip_address("10.1.0.2"),),
            ready=False,
            serving=False,
            terminating=True,
            node_name="node-a",
            zone="a",
            hostname="web-0",
            for_zones=("a", "b"),
            for_nodes=("node-a", "node-b"),
            target="web-0",
        ),
        Endpoint(addresses=(ip_address("10.1.0.3"),), node_name="node-b"),
    ),
    stored={"10.1.0.2/32": "010.1.0.2"},
)
NODE = Node(
    name="node-a",
    labels={ZONE_LABEL: "a"},
    addresses=(ip_address("192.0.2.1"), ip_address("192.0.2.2")),
    pod_cidrs=(ip_network("10.1.0.0/24"), ip_network("fd00:1::/64")),
    taints=(f"{TO_BE_DELETED}:NoSchedule",),
    deleting=True,
)
CIDRS = ServiceCIDR(name="more", cidrs=(ip_network("172.30.0.0/16"), ip_network("fd00:30::/112")))
PROXY = ProxyConfiguration(
    detect_local_mode=DetectLocalMode.BRIDGE_INTERFACE,
    bind_address=ip_address("192.0.2.1"),
    cluster_cidrs=(ip_network("10.1.0.0/16"),),
    bridge_interface="cni0",
    interface_name_prefix="veth",
    node_port_addresses=(ip_network("192.0.2.0/24"),),
    node_port_primary=True,
    masquerade_bit=12,
    masquerade_all=True,
    localhost_node_ports=False,
    sync_period=5,
    min_sync_period=1,
    conntrack=ConntrackTimeouts(tcp_established=1, tcp_close_wait=2, udp=3, udp_stream=4, tcp_be_liberal=True),
    healthz=SocketAddress(ip_address("127.0.0.1"), 1),
    metrics=SocketAddress(ip_address("127.0.0.2"), 2),
    nftables=NftablesConfiguration(masquerade_bit=3, masquerade_all=True, sync_period=4, min_sync_period=5),
    ipvs=IpvsConfiguration(
        scheduler=Scheduler.SH,
        exclude_cidrs=(ip_network("10.0.0.0/8"),),
        strict_arp=True,
        tcp=1,
        tcp_fin=2,
        udp=3,
        sync_period=4,
        min_sync_period=5,
    ),
    udp_idle_timeout=9,
    feature_gates={"NFTablesProxyMode": True},
)
WHOLE: tuple[tuple[str, Struct], ...] = (
    ("Service", SERVICE),
    ("EndpointSlice", SLICE),
    ("Node", NODE),
    ("ServiceCIDR", CIDRS),
    (CONFIGURATION, PROXY),
)
"""Each kind with every field set, and two elements in most lists."""

USERS_OWN = {"Service.selector", "Service.annotations", "Service.stored", "EndpointSlice.stored"}
"""Maps with keys of users' own, which no proxy reads."""

UNSHOWN = {f"Service.loadBalancerIngress[{which}].behind" for which in ("first", "last")}
"""What no API shows."""

MUTATIONS = mutations_of([[SERVICE, SLICE, NODE, CIDRS]], PROXY)


def fields_of(record: Any, where: str) -> Iterator[str]:
    """The path of each field, through records and the first elements of lists."""
    for each in fields(record):
        value, path = getattr(record, each.name), f"{where}.{key_of(each.name)}"
        inner = value[0] if isinstance(value, tuple) and value else value
        if isinstance(inner, Struct):
            yield from fields_of(inner, f"{path}[first]" if inner is not value else path)
        else:
            yield path


@pytest.mark.parametrize("path", [path for where, record in WHOLE for path in fields_of(record, where)])
def test_every_field_has_a_mutant(path: str) -> None:
    """A new field whose default has none, such as an empty list, is red until the example above sets it."""
    mutants = [each.key for each in MUTATIONS if each.where == path or each.where.startswith((f"{path}[", f"{path}."))]
    assert path in USERS_OWN | UNSHOWN or mutants != []


def test_users_own_maps_have_proofs() -> None:
    assert [path for path in USERS_OWN if not proof_of_mutation(ObjectMutation(path, "left out"), "iptables")] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.key)
def test_a_mutation_changes_only_what_it_names(mutation: ObjectMutation) -> None:
    things: tuple[KubeObject, ...] = (SERVICE, SLICE, NODE, CIDRS)
    changed = {type(each).__name__ for each in things if images(each, mutation) != (each,)}
    if mutated_configuration(PROXY, mutation) != PROXY:
        changed.add(CONFIGURATION)
    kind = mutation.where.partition(".")[0]
    assert changed == ({"Service", "EndpointSlice"} if " of the " in mutation.where else {kind})


@pytest.mark.parametrize(
    ("where", "change", "expected"),
    [
        ("Service.ports", "without the last", replace(SERVICE, ports=SERVICE.ports[:1])),
        (
            "Service.ports[last].nodePort",
            "one more",
            replace(SERVICE, ports=(SERVICE.ports[0], replace(SERVICE.ports[1], node_port=30054))),
        ),
        (
            "Service.ports[].nodePort",
            "exchanged",
            replace(
                SERVICE,
                ports=(replace(SERVICE.ports[0], node_port=30053), replace(SERVICE.ports[1], node_port=30080)),
            ),
        ),
        (
            "Service.sourceRanges[last]",
            "one bit longer",
            replace(SERVICE, source_ranges=(ip_network("192.0.2.0/24"), ip_network("10.0.0.0/9"))),
        ),
        ("Service.externalTrafficPolicy", "as Cluster", replace(SERVICE, external_traffic_policy="Cluster")),
        ("Service.affinityTimeout", "left out", replace(SERVICE, affinity_timeout=None)),
        ("Service.affinityTimeout", "half as long", replace(SERVICE, affinity_timeout=5400)),
        ("Service.affinityTimeout", "ten times as long", replace(SERVICE, affinity_timeout=108000)),
        ("Service.labels[service.kubernetes.io/service-proxy-name]", "left out", replace(SERVICE, labels={})),
    ],
)
def test_what_a_mutation_makes_of_a_service(where: str, change: str, expected: Service) -> None:
    assert ObjectMutation(where, change) in MUTATIONS
    assert images(SERVICE, ObjectMutation(where, change)) == (expected,)


def test_a_configuration_without_the_setting_of_a_mutation_is_refused() -> None:
    """Nothing could notice such a mutation, and the campaign would say that no probe does."""
    with pytest.raises(InternalError, match="scheduler: as nonsense' changes nothing in"):
        mutated_configuration(PROXY, ObjectMutation(f"{CONFIGURATION}.ipvs.scheduler", "as nonsense"))
    assert mutated_configuration(PROXY, ObjectMutation("Service", "absent")) is PROXY


def test_a_lab_process_knows_each_mutation() -> None:
    """It gets the objects and the configuration as JSON, and finds the mutations of what it reads."""
    read = [decode(encode(each), type(each)) for each in (SERVICE, SLICE, NODE, CIDRS)]
    assert mutations_of([read], decode(encode(PROXY), ProxyConfiguration)) == MUTATIONS


def test_a_setting_can_be_of_the_last_port_alone() -> None:
    mutation = ObjectMutation("Service.sourceRanges of the last port", "left out")
    rest, only = images(SERVICE, mutation)
    assert rest == replace(SERVICE, ports=SERVICE.ports[:1])
    assert only == replace(
        SERVICE, name="web-part", ports=SERVICE.ports[1:], source_ranges=(), health_check_node_port=0
    )
    mine, others = images(SLICE, mutation)
    assert mine == SLICE
    assert others == replace(SLICE, name="web-1-part", service="web-part")


def test_a_part_forgets_no_client_sooner_by_itself() -> None:
    half = {each.where for each in MUTATIONS if each.change == "half as long"}
    assert half == {"Service.affinityTimeout"}


def test_a_setting_can_be_of_the_last_address_alone() -> None:
    rest, only = images(SERVICE, ObjectMutation("Service.sourceRanges of the last ingress address", "left out"))
    assert isinstance(rest, Service)
    assert isinstance(only, Service)
    assert [str(each.ip) for each in rest.load_balancer_ingress] == ["203.0.113.1"]
    assert [str(each.ip) for each in only.load_balancer_ingress] == ["203.0.113.2"]
    assert set(only.cluster_ips).isdisjoint(SERVICE.cluster_ips)
    assert only.external_ips == ()
    assert {each.node_port for each in only.ports} == {0}


def test_an_exchange_that_only_orders_is_none() -> None:
    ingress = tuple(LoadBalancerIngress(ip=ip_address(f"203.0.113.{number}")) for number in (1, 2))
    found = mutations_of([[replace(SERVICE, load_balancer_ingress=ingress)]], ProxyConfiguration())
    assert ObjectMutation("Service.loadBalancerIngress[].ip", "exchanged") not in found
    assert ObjectMutation("Service.loadBalancerIngress[].ip", "exchanged") in MUTATIONS  # their modes differ


def test_later_events_are_what_steps_change() -> None:
    moved = replace(SLICE, endpoints=SLICE.endpoints[:1])
    found = mutations_of([[SERVICE, SLICE], [SERVICE, moved], [moved, NODE]], ProxyConfiguration())
    assert [each.key for each in found if each.is_of_events] == [
        f"later events of {kind}: {event} {fate}"
        for kind, event in (("EndpointSlice", "MODIFIED"), ("Service", "DELETED"), ("Node", "ADDED"))
        for fate in ("withheld", "late")
    ]


@pytest.mark.parametrize(
    ("kind", "blind"),
    [
        ("Node", {Mode.USERSPACE}),
        ("ServiceCIDR", set(Mode) - {Mode.NFTABLES}),
        ("EndpointSlice", set()),
        ("Service", set()),
    ],
)
@pytest.mark.parametrize("change", ["MODIFIED withheld", "DELETED late"])
def test_later_events_of_a_kind_that_a_mode_does_not_read_have_the_proof_of_the_kind(
    kind: str, blind: set[Mode], change: str
) -> None:
    proofs = {mode: proof_of_mutation(ObjectMutation(f"later events of {kind}", change), mode) for mode in Mode}
    assert {mode for mode, proof in proofs.items() if proof} == blind
    assert proofs == {mode: proof_of_mutation(ObjectMutation(kind, "absent"), mode) for mode in Mode}


def test_only_mode_userspace_goes_by_the_order_of_cluster_ips() -> None:
    exchanged = ObjectMutation("Service.clusterIPs", "first and last exchanged")
    assert exchanged in MUTATIONS
    assert [mode for mode in Mode if not proof_of_mutation(exchanged, mode)] == [Mode.USERSPACE]


@pytest.mark.parametrize(
    ("field", "made"),
    [
        ("udpIdleTimeout", replace(PROXY, udp_idle_timeout=90)),
        ("ipvs.tcp", replace(PROXY, ipvs=replace(PROXY.ipvs, tcp=10))),
        ("ipvs.tcpFin", replace(PROXY, ipvs=replace(PROXY.ipvs, tcp_fin=20))),
        ("ipvs.udp", replace(PROXY, ipvs=replace(PROXY.ipvs, udp=30))),
    ],
)
def test_a_connection_is_remembered_ten_times_as_long_and_not_a_second(field: str, made: ProxyConfiguration) -> None:
    where = f"{CONFIGURATION}.{field}"
    assert mutated_configuration(PROXY, ObjectMutation(where, "ten times as long")) == made
    assert ObjectMutation(where, "one more") not in MUTATIONS


@pytest.mark.parametrize("mode", Mode)
def test_only_mode_nftables_reads_service_cidrs(mode: Mode) -> None:
    proof = proof_of_mutation(ObjectMutation("ServiceCIDR.cidrs", "without the last"), mode)
    assert bool(proof) is (mode is not Mode.NFTABLES)


@pytest.mark.parametrize("mode", Mode)
def test_the_primary_address_without_node_port_addresses_is_that_of_mode_nftables(mode: Mode) -> None:
    proof = proof_of_mutation(ObjectMutation("KubeProxyConfiguration.nodePortPrimary", "turned off"), mode)
    assert bool(proof) is (mode in (Mode.NFTABLES, Mode.USERSPACE))


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("change", ["turned on", "turned off"])
def test_only_mode_iptables_has_a_rule_that_tcp_be_liberal_leaves_out(change: str, mode: Mode) -> None:
    proof = proof_of_mutation(ObjectMutation("KubeProxyConfiguration.conntrack.tcpBeLiberal", change), mode)
    assert bool(proof) is (mode is not Mode.IPTABLES)


@pytest.mark.parametrize(
    "mutation",
    [each for each in MUTATIONS if each.where.startswith(("Service.ports[last].nodePort", "Node.labels["))],
    ids=lambda each: each.key,
)
def test_what_a_proxy_reads_has_no_proof(mutation: ObjectMutation) -> None:
    blind = [Mode.USERSPACE] if mutation.where.startswith("Node.") else []  # the mode follows no zones
    assert [mode for mode in Mode if proof_of_mutation(mutation, mode)] == blind


def wholly_shown(case: Scenario, objects: Sequence[KubeObject], mode: Mode) -> object:
    """All that the proxies of a mode make of these objects: their rules, and what a process of theirs serves."""
    texts = [each.text for each in rendered_rules(case, assemble(case).plan, objects, f"embedded/{mode}")]
    store = Store()
    for each in objects:
        store.apply(each)
    cluster = ClusterView.of(store)
    trackers = [PortTracker(case.network.families[0], each.name) for each in case.nodes]
    process = [served_ports(tracked_ports(each, cluster)) for each in trackers] if mode is Mode.USERSPACE else []
    return texts, process


WITH_ALL_FIELDS = (
    *("terminating/first-and-last-endpoint", "topology/second-node-of-a-hint", "topology/second-zone-and-local-policy"),
    *("loadbalancer/settings-at-the-second-port", "loadbalancer/second-range-and-second-address"),
    *("detect-local/given-cluster-cidr", "detect-local/bridge-interface", "detect-local/interface-name-prefix"),
    *("bugs/94861-asymmetric-routing", "loadbalancer/health-check-node-port"),
)


@pytest.mark.parametrize("mode", [each for each in Mode if MODES[each].unread])
def test_what_a_mode_does_not_read_changes_nothing_that_it_renders(mode: Mode) -> None:
    met, tried = set[str](), set[ObjectMutation]()
    for file in WITH_ALL_FIELDS:
        case = cases(load_scenario(SCENARIOS / f"{file}.lab.yaml"), mode)[0]
        configuration, objects = case.proxy or ProxyConfiguration(), assemble(case).timeline[0].objects
        for mutation in mutations_of([objects], configuration):
            proof = proof_of_mutation(mutation, mode)
            rows = {row for row, each in {**MODES[mode].unread, **MODES[mode].alike}.items() if each == proof}
            primary = mutation.where == "KubeProxyConfiguration.nodePortPrimary"  # equal rules, where no list is given
            if rows == {"Node"}:  # rules are rendered Node by Node; tests/kernel/test_mutants_of_objects asks a lab
                continue
            if not rows or primary or mutation in tried:
                continue
            tried.add(mutation)
            met |= {row for row in rows if row.partition(":")[0] in re.sub(r"\[[^]]*\]", "", mutation.where)}
            altered = replace(case, proxy=mutated_configuration(configuration, mutation))
            true, false = (
                [shown for each in objects for shown in images(each, mutation, altered=is_altered)]
                for is_altered in (False, True)
            )
            assert wholly_shown(altered, false, mode) == wholly_shown(case, true, mode), mutation.key
    assert met >= MODES[mode].unread.keys() - {"Node"}


@pytest.mark.parametrize("file", ["nodeport/primary-address", "nodeport/second-node-port-address"])
def test_a_node_of_a_lab_has_one_address_of_each_family(file: str) -> None:
    """The proof of the mutant that exchanges them says so, of nodes with further addresses, too."""
    assert proof_of_mutation(ObjectMutation("Node.addresses", "first and last exchanged"), "iptables")
    objects = assemble(load_scenario(SCENARIOS / f"{file}.lab.yaml")).timeline[0].objects
    nodes = [each for each in objects if isinstance(each, Node)]
    assert nodes
    assert [[address.version for address in each.addresses] for each in nodes] == [[4, 6]] * len(nodes)
