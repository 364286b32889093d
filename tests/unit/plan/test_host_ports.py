"""Host ports: the rules of portmap for the pods of a node, and where flows to them may arrive."""

from ipaddress import ip_address, ip_network
from typing import Final

import pytest

from proxylab.addresses import Protocol, Transport
from proxylab.cluster.objects import Node, Pod, PodPort
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.host_ports import HostPort, host_port_text, host_ports
from proxylab.plan.topology import draw
from proxylab.scenario.load import parse_scenario

FILE: Final = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: host-ports}
spec:
  network: {families: [IPv4, IPv6], podNetwork: NETWORK}
  nodes: {node-a: {}, node-b: {}}
  pods:
    web: {nodes: [node-a], ports: [{name: http, port: 8080, hostPort: 80}, {port: 53, protocol: UDP, hostPort: 53}]}
    inner: {nodes: [node-a], ports: [{port: 8080, hostPort: 90, hostIP: 127.0.0.1}]}
    lb: {nodes: [node-b], ports: [{port: 80, hostPort: 80}], forwardsTo: echo}
    echo: {nodes: [node-a], labels: {app: echo}, ports: [8080]}
  hosts: {outside: {}}
  probes:
  - {name: own port, from: outside, to: {pod: web, via: hostPort, port: http}, expect: {also: promises}}
  - {name: by number, from: outside, to: {pod: web, via: hostPort, port: 53}, expect: {also: promises}}
  - {name: in IPv6, from: outside, to: {pod: web, via: hostPort, port: 80, family: IPv6}, expect: {also: promises}}
  - {name: by hostIP, from: node-a, to: {pod: inner, via: hostPort}, expect: {also: promises}}
  - {name: on localhost, from: {name: node-a, loopback: true}, to: {pod: web, via: hostPort, port: http},
     expect: {also: promises}}
  - {name: by address, from: outside, to: {address: 172.18.0.2, port: 80}, expect: {also: promises}}
  - {name: past a hostIP, from: outside, to: {address: 172.18.0.2, port: 90}, expect: {also: promises}}
  - {name: passed on, from: outside, to: {pod: lb, via: hostPort}, expect: {also: promises}}
  - {name: to the pod itself, from: outside, to: {pod: lb}, expect: {also: promises}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""


def served(**changes: object) -> HostPort:
    fields: dict[str, object] = {
        "node": "node-a",
        "pod": "default/web",
        "protocol": Protocol.TCP,
        "port": 80,
        "at": None,
        "address": ip_address("10.244.0.5"),
        "pod_port": 8080,
        "subnet": ip_network("10.244.0.0/24"),
    }
    return HostPort(**{**fields, **changes})  # type: ignore[arg-type]


def lines(text: str, chain: str) -> list[str]:
    return [each.partition(f"{chain} ")[2] for each in text.splitlines() if each.startswith(f"-A {chain} ")]


def chain_of(text: str, port: int) -> str:
    (entry,) = (each for each in lines(text, "CNI-HOSTPORT-DNAT") if f"--dports {port} " in f"{each} ")
    return entry.rpartition(" ")[2]


def test_a_pods_chain_masquerades_its_own_network_and_localhost_and_then_translates() -> None:
    text = host_port_text([served()])
    dialled, marks = "-p tcp --dport 80", "-j CNI-HOSTPORT-SETMARK"
    assert lines(text, chain_of(text, 80)) == [
        f"-s 10.244.0.0/24 {dialled} {marks}",
        f"-s 127.0.0.1 {dialled} {marks}",
        f"{dialled} -j DNAT --to-destination 10.244.0.5:8080",
    ]
    assert lines(text, "CNI-HOSTPORT-MASQ") == ["-m mark --mark 0x2000/0x2000 -j MASQUERADE"]


def test_over_ipv6_localhost_is_not_masqueraded_and_the_address_has_brackets() -> None:
    six = served(address=ip_address("fd00::5"), subnet=ip_network("fd00::/64"), at=ip_address("fd00:172::2"))
    text = host_port_text([six])
    dialled = "-d fd00:172::2 -p tcp --dport 80"
    assert lines(text, chain_of(text, 80)) == [
        f"-s fd00::/64 {dialled} -j CNI-HOSTPORT-SETMARK",
        f"{dialled} -j DNAT --to-destination [fd00::5]:8080",
    ]


def test_jumps_are_added_once_and_masquerading_stands_first() -> None:
    first, later = host_port_text([served()]), host_port_text([served()], begins=False)
    assert lines(first, "PREROUTING") == lines(first, "OUTPUT") == ["-m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT"]
    assert any(each.startswith("-I POSTROUTING 1 ") for each in first.splitlines())
    assert "PREROUTING" not in later
    assert "POSTROUTING" not in later


def test_a_chain_of_a_pod_that_is_gone_is_deleted_and_one_that_stays_is_not() -> None:
    other = served(pod="default/other", port=81)
    chain = chain_of(host_port_text([other]), 81)
    text = host_port_text([served()], ["default/web", "default/other"], begins=False)
    assert [each for each in text.splitlines() if each.startswith("-X")] == [f"-X {chain}"]
    assert f":{chain} - [0:0]" in text, "which empties it before"


def test_a_rule_holds_fifteen_ports_at_most_and_one_protocol() -> None:
    many = [served(port=port) for port in range(1000, 1020)] + [served(port=53, protocol=Protocol.UDP)]
    entries = lines(host_port_text(many), "CNI-HOSTPORT-DNAT")
    numbers = [(each.split()[1], each.partition("--dports ")[2].split()[0].count(",") + 1) for each in entries]
    assert numbers == [("tcp", 15), ("tcp", 5), ("udp", 1)]


def test_names_of_chains_fit_into_iptables() -> None:
    text = host_port_text([served(pod="default/" + "a" * 63)])
    assert len(chain_of(text, 80)) == 28


@pytest.mark.parametrize(
    ("network", "subnets"),
    [("ptp", {"10.244.0.0/24", "fd00:10:244::/64"}), ("bridge", {"10.244.0.0/24", "fd00:10:244::/64"})],
)
def test_a_plugin_gives_pods_addresses_of_the_nodes_network(network: str, subnets: set[str]) -> None:
    assert {str(each.subnet) for each in found(network) if each.pod == "default/web"} == subnets


def test_a_plugin_without_gateways_gives_each_pod_a_network_alone() -> None:
    web = [each for each in found("ptp-unnumbered") if each.pod == "default/web"]
    assert all(each.subnet == ip_network(each.address) for each in web)
    assert {each.address.version for each in web} == {4, 6}


def found(network: str) -> tuple[HostPort, ...]:
    assembly = assembled(network)
    cluster = assembly.timeline[0]
    return host_ports(assembly.plan, cluster.pods.values(), cluster.nodes.values())


def assembled(network: str = "ptp") -> Assembly:
    return assemble(parse_scenario(FILE.replace("NETWORK", network), "host-ports.lab.yaml"))


def test_a_host_ip_is_of_one_family_and_an_unspecified_one_means_every_address() -> None:
    plan = draw(parse_scenario(FILE.replace("NETWORK", "ptp"), "host-ports.lab.yaml"))
    own = (ip_address("10.244.0.5"), ip_address("fd00:10:244::5"))
    node = Node(name="node-a")

    def at(host_ip: str) -> set[tuple[str, str]]:
        port = PodPort(port=8080, host_port=80, host_ip=ip_address(host_ip))
        pod = Pod(name="p", node_name="node-a", addresses=own, ports=(port,))
        return {(str(each.address), str(each.at)) for each in host_ports(plan, [pod], [node])}

    assert at("172.18.0.2") == {("10.244.0.5", "172.18.0.2")}
    assert at("0.0.0.0") == {("10.244.0.5", "None")}
    assert at("::") == {("fd00:10:244::5", "None")}


def test_a_pod_on_the_host_network_needs_no_rule() -> None:
    plan = draw(parse_scenario(FILE.replace("NETWORK", "ptp"), "host-ports.lab.yaml"))
    port = PodPort(port=80, host_port=80)
    pod = Pod(name="p", node_name="node-a", addresses=(ip_address("172.18.0.2"),), ports=(port,), host_network=True)
    assert not host_ports(plan, [pod], [Node(name="node-a")])


@pytest.mark.parametrize(
    ("name", "dialled", "endpoints"),
    [
        ("own port", ("172.18.0.2", 80, "TCP"), {"web:8080"}),
        ("by number", ("172.18.0.2", 53, "UDP"), {"web:53"}),
        ("in IPv6", ("fd00:172:18::2", 80, "TCP"), {"web:8080"}),
        ("by hostIP", ("127.0.0.1", 90, "TCP"), {"inner:8080"}),
        ("on localhost", ("127.0.0.1", 80, "TCP"), {"web:8080"}),
        ("by address", ("172.18.0.2", 80, "TCP"), {"web:8080"}),
        ("past a hostIP", ("172.18.0.2", 90, "TCP"), {"node-a:90"}),
        ("passed on", ("172.18.0.3", 80, "TCP"), {"echo:8080"}),
        ("to the pod itself", ("10.244.1.10", 80, "TCP"), {"echo:8080"}),
    ],
)
def test_a_probe_dials_the_node_and_may_arrive_at_the_pod(
    name: str, dialled: tuple[str, int, str], endpoints: set[str]
) -> None:
    assembly = assembled()
    number = next(at for at, probe in enumerate(assembly.scenario.probes) if probe.name == name)
    resolved = assembly.resolved_probes[number]
    names = {address: own for own, addresses in assembly.addresses.items() for address in addresses}
    assert (str(resolved.destination), resolved.port, str(resolved.protocol)) == dialled
    behind = {f"{names[each.address]}:{each.port}" for each in resolved.endpoints}
    if name == "on localhost":  # the address does not say of which node
        assert endpoints < behind
    else:
        assert behind == endpoints


def test_a_pod_that_passes_packets_on_gets_none_itself() -> None:
    assembly = assembled()
    (resolved,) = {each.name: each for each in assembly.resolved_probes if each.name == "passed on"}.values()
    assert resolved.forwarders == ("lb",)
    assert "lb" not in {each.name for each in resolved.receivers}
    assert not assembly.plan.namespace("lb").listeners
    sysctls = {each.name: each.value for each in assembly.plan.namespace("lb").sysctls}
    assert sysctls["net.ipv4.conf.default.forwarding"] == sysctls["net.ipv6.conf.default.forwarding"] == "1"
    assert resolved.protocol is Transport.TCP
