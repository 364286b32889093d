"""Rules of iptables and nftables, as a diagnosis reads and judges them.

The rules are those that upstream's kube-proxy 1.36.3 has written for each small cluster (tests/golden).
"""

import re
from ipaddress import ip_address
from pathlib import Path

import pytest
from golden_words import Told
from oracle_worlds import PROXY
from rule_cases import CASES, ELSEWHERE, HERE, Addresses, Case, echo, here_and_there, slice_of

from proxylab.addresses import Family
from proxylab.cluster.objects import Node
from proxylab.engines.modes import MODES
from proxylab.engines.programmed import Way
from proxylab.features.diagnose.model import Finding, Stage, Standing
from proxylab.features.diagnose.rules_stages import Rules, judge_balancing, judge_entries, judge_targets
from proxylab.features.diagnose.subject import DiagnosedService

SAVED = Path(__file__).parents[3] / "golden" / "kube-proxy-v1.36.3"
NODES = (HERE,)
FILES = [(file.name.split(".")[0], Family("IPv" + file.name[-7])) for file in sorted(SAVED.glob("*.saved"))]
FILES = [(name, family) for name, family in FILES if name != "empty"]


def subject_of(case: Case, family: Family) -> DiagnosedService:
    service = next(each for each in case.cluster.services if each.name == "echo")
    zone = {} if not case.node.zone else {"topology.kubernetes.io/zone": case.node.zone}
    nodes = (Node(name=HERE, labels=zone), Node(name=ELSEWHERE))
    return DiagnosedService.of(service, (*case.cluster.services, *case.cluster.slices, *nodes), (family,), PROXY)


def judged(subject: DiagnosedService, rules: Rules) -> Finding:
    """The first of the stations in rules that breaks; else the last."""
    entries = judge_entries(subject, rules, NODES)
    if entries.stops:
        return entries
    balancing = judge_balancing(subject, rules, NODES)
    return balancing if balancing.stops else judge_targets(subject, rules, NODES) or balancing


@pytest.mark.parametrize(("name", "family"), FILES, ids=[f"{name}-{family}" for name, family in FILES])
def test_the_rules_of_a_sound_proxy_hold(name: str, family: Family) -> None:
    case = CASES[name](Addresses(family))
    text = (SAVED / f"{name}.{family.lower()}.saved").read_text()
    found = judged(subject_of(case, family), {(HERE, family): MODES["iptables"].read(text)})
    assert found.standing is Standing.HOLDS, found.cause


def saved(name: str = "node-port") -> tuple[DiagnosedService, str]:
    subject = subject_of(CASES[name](Addresses(Family.IPV4)), Family.IPV4)
    return subject, (SAVED / f"{name}.ipv4.saved").read_text()


BROKEN = {
    "no rule for the cluster IP": (
        r"-A KUBE-SERVICES -d \S+ .*cluster IP.*\n", "",
        Stage.ENTRY, "node-a has no rule for the cluster IP 10.96.0.20:80/TCP",
    ),
    "no rule for the node port": (
        r"-A KUBE-NODEPORTS (?!-d).*\n", "", Stage.ENTRY, "node-a has no rule for the node port 30080/TCP",
    ),
    "node ports are never asked": (
        r"-A KUBE-SERVICES .* -j KUBE-NODEPORTS\n", "", Stage.ENTRY, "no rule jumps from the rules for Services to",
    ),
    "nothing leads to Services' rules": (
        r"-A PREROUTING .* -j KUBE-SERVICES\n", "", Stage.ENTRY, "no rule sends packets that come in to them",
    ),
    "a node does not ask for its own packets": (
        r"-A OUTPUT .* -j KUBE-SERVICES\n(?=[^*]*-A POSTROUTING)", "",
        Stage.ENTRY, "no rule sends packets of the node itself to them",
    ),
    "everything is flushed": (r"(?s).*", "", Stage.ENTRY, "has no IPv4 rule for any Service"),
    "one way is missing": (
        r"-A KUBE-SVC-\w+ .*--probability 0\.33.*\n", "", Stage.BALANCING, "2 ways for 3 endpoints; none leads to",
    ),
    "the shares are not even": (
        r"--probability 0\.5\d*", "--probability 0.25", Stage.BALANCING, "gives 10.42.0.11:8080 16.7% of the flows",
    ),
    "nothing chooses": (
        r"-A KUBE-SVC-\w+ .*-j KUBE-SEP-\w+\n", "", Stage.BALANCING, "where no rule chooses an endpoint",
    ),
    "it translates to another port": (
        r"10\.42\.0\.11:8080\n", "10.42.0.11:8081\n", Stage.DNAT, "to 10.42.0.11:8081, which is not an endpoint",
    ),
    "it translates nothing": (
        r"-A KUBE-SEP-\w+ .*-j DNAT --to-destination 10\.42\.0\.11:8080\n", "", Stage.DNAT, "translates nothing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rules_are_told_from_sound_ones(name: str) -> None:
    pattern, becomes, stage, words = BROKEN[name]
    subject, text = saved()
    edited = re.sub(pattern, becomes, text)
    assert edited != text
    found = judged(subject, {(HERE, Family.IPV4): MODES["iptables"].read(edited)})
    assert (found.stage, found.standing) == (stage, Standing.BREAKS)
    assert words in found.cause
    assert any(HERE in each for each in found.look_at)


def test_a_node_that_refuses_what_has_endpoints_is_told(told: Told) -> None:
    subject, _ = saved()
    _, refusing = saved("node-port-no-endpoints")
    found = judged(subject, {(HERE, Family.IPV4): MODES["iptables"].read(refusing)})
    assert found.cause == told()


def test_a_service_of_another_proxy_has_no_rules() -> None:
    addresses = Addresses(Family.IPV4)
    service = echo(addresses, labels={"service.kubernetes.io/service-proxy-name": "mesh"})
    subject = DiagnosedService.of(
        service, (service, slice_of(service, addresses, *here_and_there(addresses))), (Family.IPV4,), PROXY
    )
    assert "hands it to the proxy 'mesh'" in judge_entries(subject, {}, NODES).cause


NFT = """\
table ip kube-proxy {
	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.40 . tcp . 80 comment "default/none" : goto reject-chain, 10.96.0.41 . tcp . 80 : drop }
	}

	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.20 . tcp . 80 : goto service-HV6DMF63-default/echo/tcp/ }
	}

	map service-nodeports {
		type inet_proto . inet_service : verdict
		elements = { tcp . 30080 : goto external-HV6DMF63-default/echo/tcp/ }
	}

	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}

	chain nat-output {
		type nat hook output priority -100; policy accept;
		jump services
	}

	chain nat-postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		jump masquerading
	}

	chain services {
		ip daddr . meta l4proto . th dport vmap @service-ips
		ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
	}

	chain masquerading {
MASQUERADING
	}

	chain external-HV6DMF63-default/echo/tcp/ {
		meta mark set meta mark | 0x00004000 comment "masquerade"
		goto service-HV6DMF63-default/echo/tcp/
	}

	chain service-HV6DMF63-default/echo/tcp/ {
		BALANCING
	}

	chain endpoint-AAAAAAAA-default/echo/tcp/__10.42.0.10/8080 {
		meta l4proto tcp dnat to 10.42.0.10:8080
	}

	chain endpoint-BBBBBBBB-default/echo/tcp/__10.42.0.11/8080 {
		meta l4proto tcp dnat to 10.42.0.11:8080
	}

	chain endpoint-CCCCCCCC-default/echo/tcp/__10.42.0.12/8080 {
		meta l4proto tcp dnat to 10.42.0.12:8080
	}
}
"""
BY_CHAINS = (
    "ip saddr @affinity-A goto endpoint-AAAAAAAA-default/echo/tcp/__10.42.0.10/8080\n\t\t"
    "numgen random mod 3 vmap { 0 : goto endpoint-AAAAAAAA-default/echo/tcp/__10.42.0.10/8080, "
    "1 : goto endpoint-BBBBBBBB-default/echo/tcp/__10.42.0.11/8080, "
    "2 : goto endpoint-CCCCCCCC-default/echo/tcp/__10.42.0.12/8080 }"
)
AT_ONCE = (
    "meta l4proto tcp dnat ip to numgen random mod 3 map "
    "{ 0 : 10.42.0.10 . 8080, 1 : 10.42.0.11 . 8080, 2 : 10.42.0.12 . 8080 }"
)
THE_ONLY_ONE = "meta l4proto tcp dnat to 10.42.0.10:8080"
BY_MARK = "\t\tmeta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random"
BY_RETURN = "\t\tmeta mark & 0x00004000 == 0x00000000 return\n\t\tmeta mark set meta mark ^ 0x00004000\n\t\tmasquerade"


def nft(balancing: str = AT_ONCE, masquerading: str = BY_MARK) -> str:
    return NFT.replace("BALANCING", balancing).replace("MASQUERADING", masquerading)


@pytest.mark.parametrize("balancing", [BY_CHAINS, AT_ONCE], ids=["by chains", "at once"])
@pytest.mark.parametrize("masquerading", [BY_MARK, BY_RETURN], ids=["by mark", "by return"])
def test_nftables_are_read_in_the_spelling_of_every_version(balancing: str, masquerading: str) -> None:
    subject, _ = saved()
    programmed = MODES["nftables"].read(nft(balancing, masquerading))
    found = judged(subject, {(HERE, Family.IPV4): programmed})
    assert found.standing is Standing.HOLDS, found.cause
    assert programmed.masquerades
    assert [each.refused for each in programmed.entries] == ["", "", "REJECT", "DROP"]


NFT_BROKEN = {
    "10.96.0.20 . tcp . 80 : goto": ("10.96.0.21 . tcp . 80 : goto", Stage.ENTRY),
    "vmap @service-nodeports": ("accept", Stage.ENTRY),
    "\t\tjump services\n\t}\n\n\tchain nat-output": ("\t}\n\n\tchain nat-output", Stage.ENTRY),
    ", 2 : 10.42.0.12 . 8080": ("", Stage.BALANCING),
    "mod 3": ("mod 4", Stage.BALANCING),
    "10.42.0.12 . 8080": ("10.42.0.13 . 8080", Stage.DNAT),
}


def test_since_1_37_a_chain_with_one_endpoint_translates_itself() -> None:
    ways = MODES["nftables"].read(nft(THE_ONLY_ONE)).ways
    chain = "service-HV6DMF63-default/echo/tcp/"
    assert ways[chain] == (Way(by=chain, chance=1, to=(ip_address("10.42.0.10"), 8080)),)
    assert not any(ways[name] for name in ways if name != chain), "to the chains of endpoints others lead by choice"


@pytest.mark.parametrize("text", NFT_BROKEN)
def test_broken_nftables_are_told_from_sound_ones(text: str) -> None:
    becomes, stage = NFT_BROKEN[text]
    subject, _ = saved()
    assert text in nft()
    found = judged(subject, {(HERE, Family.IPV4): MODES["nftables"].read(nft().replace(text, becomes))})
    assert (found.stage, found.standing) == (stage, Standing.BREAKS)


def test_what_masquerades_nothing_is_seen() -> None:
    assert not MODES["nftables"].read(nft(masquerading="\t\treturn")).masquerades
    _, text = saved()
    assert MODES["iptables"].read(text).masquerades
    assert not MODES["iptables"].read(re.sub(r"-A KUBE-POSTROUTING .*MASQUERADE.*\n", "", text)).masquerades
    assert not MODES["iptables"].read(re.sub(r"-A KUBE-MARK-MASQ .*\n", "", text)).masquerades


def test_each_family_gets_its_part_of_a_dump() -> None:
    both = (Family.IPV4, Family.IPV6)
    saves = "# of 4\n*mangle\nCOMMIT\n*nat\nfour\n# of 6\n*mangle\nCOMMIT\n*nat\nsix\n"
    parts = MODES["iptables"].by_family(saves, both)
    assert ["four" in parts[Family.IPV4], "six" in parts[Family.IPV6]] == [True, True]
    assert MODES["nftables"].by_family("table ip6 kube-proxy {\n}\n", both) == {
        Family.IPV4: "",
        Family.IPV6: "table ip6 kube-proxy {\n}\n",
    }
