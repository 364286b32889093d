"""A node's dump in mode ipvs as a diagnosis reads it, and as comparisons do."""

from ipaddress import ip_address

from proxylab.addresses import Family, Protocol
from proxylab.engines.embedded.ipvs.sets import NodeSet
from proxylab.engines.embedded.ipvs.texts import differences, holds, print_tables, read
from proxylab.engines.programmed import Entry, Hook, Way
from proxylab.evidence.ipvs import IpvsDestination, Member, VirtualServer

VIP, NODE, BALANCED = (ip_address(each) for each in ("10.96.0.10", "172.18.0.2", "192.0.2.10"))
NEAR, FAR = (ip_address(each) for each in ("10.244.0.10", "10.244.1.10"))
RULES = """\
*mangle
COMMIT
*filter
:KUBE-IPVS-OUT-FILTER - [0:0]
{closed}COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
COMMIT
"""
SETS = [
    NodeSet.CLUSTER_IP.of(Family.IPV4, frozenset({Member(address=VIP, protocol=Protocol.TCP, port=80)})),
    NodeSet.NODE_PORT_TCP.of(Family.IPV4, frozenset({Member(port=30080)})),
]


def server(address: str, port: int, *weights: int) -> VirtualServer:
    ends = zip((NEAR, FAR), weights, strict=False)
    destinations = tuple(IpvsDestination(address=each, port=8080, weight=weight) for each, weight in ends)
    return VirtualServer(address=ip_address(address), port=port, protocol=Protocol.TCP, destinations=destinations)


def dump(*servers: VirtualServer, bound: bool = True, closed: str = "") -> str:
    return RULES.format(closed=closed) + print_tables(SETS, servers, [VIP, BALANCED] if bound else [])


def test_virtual_servers_are_entries_and_destinations_ways() -> None:
    programmed = read(dump(server("10.96.0.10", 80, 1, 1), server("172.18.0.2", 30080, 1, 3)))
    assert programmed.hooked == {Hook.IN, Hook.OUT, Hook.LEAVING}
    assert programmed.masquerades
    assert programmed.falls_back
    assert programmed.entries == (
        Entry(address=VIP, protocol=Protocol.TCP, port=80, leads_to="-t 10.96.0.10:80"),
        Entry(address=None, protocol=Protocol.TCP, port=30080, leads_to="-t 172.18.0.2:30080"),
    )
    assert programmed.ways["-t 10.96.0.10:80"] == (
        Way(by="-t 10.96.0.10:80", chance=0.5, to=(NEAR, 8080)),
        Way(by="-t 10.96.0.10:80", chance=0.5, to=(FAR, 8080)),
    )
    assert [each.chance for each in programmed.ways["-t 172.18.0.2:30080"]] == [0.25, 0.75]


def test_a_virtual_server_without_destinations_rejects_and_weight_0_is_none() -> None:
    (empty, ending) = read(dump(server("10.96.0.10", 80), server("192.0.2.10", 80, 0, 1))).entries
    assert (empty.leads_to, empty.refused) == ("", "REJECT")
    assert read(dump(server("192.0.2.10", 80, 0, 1))).ways[ending.leads_to] == (
        Way(by="-t 192.0.2.10:80", chance=1.0, to=(FAR, 8080)),
    )


def test_no_packet_to_a_cluster_ip_without_an_address_on_the_dummy_device_is_served() -> None:
    assert read(dump(server("10.96.0.10", 80, 1), bound=False)).entries == ()


def test_the_order_of_rules_that_close_addresses_to_the_node_does_not_count() -> None:
    rules = [
        f"-A KUBE-IPVS-OUT-FILTER -s 192.0.2.{each}/32 -m ipvs --vaddr 192.0.2.{each} -j DROP\n" for each in (1, 2)
    ]
    assert differences(dump(closed="".join(rules)), dump(closed="".join(reversed(rules)))) == []
    assert differences(dump(closed=rules[0]), dump(closed=rules[1])) != []


def test_one_member_and_one_destination_more_are_differences() -> None:
    less, more = dump(server("10.96.0.10", 80, 1)), dump(server("10.96.0.10", 80, 1, 1))
    assert differences(less, more) == ["+ -a -t 10.96.0.10:80 -r 10.244.1.10:8080 -m -w 1"]


def test_a_dump_holds_the_mode_by_what_kube_proxy_before_1_26_writes_as_well() -> None:
    """Those have no KUBE-IPVS-FILTER."""
    empty = dump()
    mark = "-A KUBE-MARK-MASQ"
    written = empty.replace(mark, f"-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ\n{mark}")
    assert (holds(written, True), holds(written, False)) == (True, False)
    assert (holds(empty, True), holds(empty, False)) == (False, True)
