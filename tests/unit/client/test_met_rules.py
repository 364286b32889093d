# ruff: noqa: E101, E501 - as nft indents, and a rule is one line
"""Which rules and elements the packets of probes met, by the counts of their evidence."""

from ipaddress import ip_address

import pytest
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Family, Transport
from proxylab.client.met_rules import MetRules
from proxylab.evidence.evidence import Evidence, RuleCount, TrackedFlow
from proxylab.verdict.judge import judge, skip
from proxylab.verdict.rule_coverage import RuleCoverage, RuleKind, together

SERVICE = "HV6DMF63-default/echo/tcp/"
TABLE = f"""\
table ip kube-proxy {{
	set cluster-ips {{
		type ipv4_addr
		elements = {{ 10.96.0.10, 10.96.0.20 }}
	}}

	set hairpin-connections {{
		type ipv4_addr . ipv4_addr . inet_proto . inet_service
		elements = {{ 10.244.2.2 . 10.244.2.2 . tcp . 8080 comment "default/echo",
			     10.244.1.2 . 10.244.1.2 . tcp . 8080 }}
	}}

	set affinity-AAAAAAAA-default/echo/tcp/__10.244.2.2/8080 {{
		type ipv4_addr
		flags dynamic,timeout
		elements = {{ 10.42.0.99 expires 50s }}
	}}

	map service-ips {{
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = {{ 10.96.0.10 . tcp . 80 comment "default/echo" : goto service-{SERVICE},
			     10.96.0.10 . udp . 80 : goto service-BBBBBBBB-default/echo/udp/ }}
	}}

	map service-nodeports {{
		type inet_proto . inet_service : verdict
		elements = {{ tcp . 30080 : goto external-{SERVICE} }}
	}}

	chain nat-prerouting {{
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}}

	chain services {{
		ip daddr @cluster-ips ip saddr != 10.244.0.0/16 mark set meta mark | 0x00004000 comment "outside"
		ip daddr . meta l4proto . th dport vmap @service-ips
		fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports
	}}

	chain masquerading {{
		ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
	}}

	chain external-{SERVICE} {{
		meta mark set meta mark | 0x00004000 comment "masquerade"
		goto service-{SERVICE}
	}}

	chain service-{SERVICE} {{
		meta l4proto tcp dnat to 10.244.2.2:8080
	}}
}}
"""
SAVED = """\
# iptables-legacy-save --counters
*mangle
:PREROUTING ACCEPT [0:0]
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-HV6DMF63W6MGLRDE - [0:0]
[2:80] -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -j SOMEONE-ELSE
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "default/echo cluster IP" -m tcp --dport 80 -j KUBE-SVC-HV6DMF63W6MGLRDE
-A KUBE-SERVICES -d 10.96.0.11/32 -p tcp -m comment --comment "default/other cluster IP" -m tcp --dport 80 -j KUBE-SVC-AAAAAAAAAAAAAAAA
-A KUBE-SVC-HV6DMF63W6MGLRDE -p tcp -m tcp -j KUBE-SEP-AAAAAAAAAAAAAAAA
COMMIT
"""
UNMET_OF_TABLE: dict[str, tuple[int, int]] = {
    "element cluster-ips": (2, 0),
    "element hairpin-connections": (2, 0),
    "element service-ips : goto service-*": (2, 0),
    "element service-nodeports : goto external-*": (1, 0),
    'external-* meta mark set meta mark | MARK comment "masquerade"': (1, 0),
    "external-* goto service-*": (1, 0),
    "masquerading ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections "
    "masquerade fully-random": (1, 0),
    "nat-prerouting jump services": (1, 0),
    "service-* meta l4proto PROTOCOL dnat to ENDPOINT": (1, 0),
    "services fib daddr type local ip daddr != LOOPBACK meta l4proto . th dport vmap @service-nodeports": (1, 0),
    'services ip daddr @cluster-ips ip saddr != NETWORK mark set meta mark | MARK comment "outside"': (1, 0),
    "services ip daddr . meta l4proto . th dport vmap @service-ips": (1, 0),
}
MET_OF_SAVED: dict[str, tuple[int, int]] = {
    "nat KUBE-SERVICES -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-SVC-* # SERVICE cluster IP": (2, 1),
    "nat KUBE-SVC-* -p PROTOCOL -j KUBE-SEP-*": (1, 0),
    "nat PREROUTING -j KUBE-SERVICES # kubernetes service portals": (1, 0),
}
LOOKS_UP = "services ip daddr . meta l4proto . th dport vmap @service-ips"
ECHO = replace(World(pods=("echo-1",)), protocol=Transport.TCP)
CLIENT = ip_address("10.244.1.2")
FAMILIES = (Family.IPV4, Family.IPV6)


def counted(chain: str, text: str, table: str = "kube-proxy", node: str = "node-a") -> RuleCount:
    return RuleCount(node, table, chain, text, 1)


def met(dump: str, mode: str, evidence: Evidence, world: World = ECHO) -> dict[str, RuleKind]:
    """The kinds after one probe."""
    rules = MetRules()
    rules.add_rules({"node-a": dump, "node-b": dump}, {"node-a": mode, "node-b": mode}, FAMILIES)
    rules.add_probe(judge(world.probe, world.resolved, None, evidence))
    return {each.kind: each for each in rules.coverage().kinds}


BY_ADDRESS = counted("services", "ip daddr . meta l4proto . th dport vmap @service-ips")
BY_PORT = counted(
    "services",
    "fib daddr type local ip daddr != 127.0.0.0/8 meta l4proto . th dport vmap @service-nodeports",
)
HAIRPIN = counted(
    "masquerading",
    "ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random",
)


def test_rules_of_a_dump_without_a_packet_are_all_unmet_and_count_once_for_all_nodes() -> None:
    found = met(TABLE, "nftables", ECHO.evidence(()))
    assert {kind: (each.rules, each.met) for kind, each in found.items()} == UNMET_OF_TABLE


def test_a_rule_that_looks_up_a_map_meets_the_element_of_what_the_probe_dials() -> None:
    found = met(TABLE, "nftables", ECHO.evidence((), counts=(BY_ADDRESS,)))
    assert [kind for kind, each in found.items() if each.met] == ["element service-ips : goto service-*", LOOKS_UP]
    elements = found["element service-ips : goto service-*"]
    assert elements.unmet == ("service-ips: 10.96.0.10 . udp . 80 : goto service-BBBBBBBB-default/echo/udp/",)
    assert elements.where == "map service-ips"


def test_no_element_is_met_where_no_rule_that_looks_it_up_counted() -> None:
    found = met(TABLE, "nftables", ECHO.evidence((), counts=(counted("nat-prerouting", "jump services"),)))
    assert [kind for kind, each in found.items() if each.met] == ["nat-prerouting jump services"]


def test_an_element_for_a_node_port_is_met_by_the_port_alone() -> None:
    node_port = replace(ECHO.resolved, destination=ip_address("172.18.0.2"), port=30080)
    rules = MetRules()
    rules.add_rules({"node-a": TABLE}, {"node-a": "nftables"}, FAMILIES)
    rules.add_probe(judge(ECHO.probe, node_port, None, ECHO.evidence((), counts=(BY_PORT,))))
    found = {each.kind: each for each in rules.coverage().kinds}
    assert found["element service-nodeports : goto external-*"].met == 1
    assert found["element service-ips : goto service-*"].met == 0


@pytest.mark.parametrize(("node", "number"), [("node-a", 1), ("node-b", 0)])
def test_an_element_behind_a_translation_is_met_by_the_end_that_the_node_chose(node: str, number: int) -> None:
    tracked = TrackedFlow(0, node, CLIENT, 8080, ip_address("10.244.1.1"), 40000)
    evidence = ECHO.evidence((), counts=(HAIRPIN,), tracked=(tracked,))
    assert met(TABLE, "nftables", evidence)["element hairpin-connections"].met == number


def test_rules_of_iptables_are_met_by_their_counters_and_those_of_others_are_left_out() -> None:
    count = counted("KUBE-SERVICES", next(each for each in SAVED.splitlines() if "10.96.0.10/32" in each), table="nat")
    found = met(SAVED, "iptables", ECHO.evidence((), counts=(count,)))
    assert {kind: (each.rules, each.met) for kind, each in found.items()} == MET_OF_SAVED
    assert {each.where for each in found.values()} == {"nat KUBE-SERVICES", "nat KUBE-SVC-*", "nat PREROUTING"}


def test_a_packet_of_the_other_family_meets_nothing() -> None:
    six = replace(ECHO, ipv6=True)
    assert not any(each.met for each in met(TABLE, "nftables", six.evidence((), counts=(BY_ADDRESS,)), six).values())


def test_a_probe_that_a_node_could_not_count_is_named_and_one_left_out_is_not() -> None:
    rules = MetRules()
    rules.add_probe(skip(ECHO.probe, ECHO.resolved, "no SCTP"))
    assert rules.coverage().uncounted == ()
    rules.add_probe(judge(ECHO.probe, ECHO.resolved, None, ECHO.evidence((), metered_nodes=("node-a",))))
    assert rules.coverage().uncounted == (ECHO.name,)
    whole = MetRules()
    whole.add_probe(judge(ECHO.probe, ECHO.resolved, None, ECHO.evidence((), metered_nodes=("node-a", "node-b"))))
    assert whole.coverage().uncounted == ()


def test_a_kind_is_met_if_one_scenario_met_it() -> None:
    def scenario(*kinds: tuple[str, int, int]) -> RuleCoverage:
        return RuleCoverage(
            tuple(
                RuleKind("nftables", "services", kind, number, met, (f"{kind} {met}",) * (number - met))
                for kind, number, met in kinds
            )
        )

    found = together([scenario(("a", 3, 0), ("b", 2, 1)), scenario(("a", 1, 1)), scenario(("c", 2, 0))])
    assert found.kinds == (
        RuleKind("nftables", "services", "a", 4, 1, ("a 0",), 1),
        RuleKind("nftables", "services", "b", 2, 1, ("b 1",), 0),
        RuleKind("nftables", "services", "c", 2, 0, ("c 0",), 1),
    )
