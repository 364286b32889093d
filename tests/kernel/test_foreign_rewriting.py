"""Rules of another program change the addresses of a Service's packets, keep them from translation, or end them.

They are named. Each lab has a Service for each rule, and each rule matches one Service alone. No engine's rule is
blamed, in either mode, whichever tool the other program uses, over IPv4 and over IPv6.
"""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from command_line import CommandLine

PORT, TARGET, NODE_PORT = 100, 8100, 30100


@dataclass(frozen=True)
class Case:
    """A rule of nft (``hook``, ``type``, ``priority``) or of iptables (a table), and what ``why:`` says of it.

    In ``rule`` and ``why``, PORT is the Service's, and TARGET that of its endpoint.
    """

    rule: str
    why: str
    at: tuple[str, str, int] | str
    node: str = "node-a"
    sender: str = "client"
    after: str = "which belongs to no engine"
    protocol: str = "TCP"


BEFORE, RAW, BEHIND = ("prerouting", "filter", -150), ("prerouting", "filter", -300), ("prerouting", "filter", -50)
FORWARD, LAST, OUT = ("forward", "filter", 10), ("postrouting", "filter", 300), ("output", "filter", 10)
RAW_OUT = ("output", "filter", -300)
DNAT, SNAT, DNAT_OUT = ("prerouting", "nat", -110), ("postrouting", "nat", 90), ("output", "nat", -110)
SOURCE = "node-a changed the packet's source to {} by the rule"
THEN = "and then changed its destination to 10.244.1.99:TARGET by the rule"
BROKEN = "the way back is broken: "
UNTRACKED = "no rule translated the packet: node-a does not track the flow, by the rule"
UNANSWERED = "web replied to 172.18.0.77, which nothing in this lab has, and client heard nothing."
DROPPED = "node-a dropped the packet by the rule"
RESET = "node-a rejected the packet with a reset by the rule"
NFT = (
    Case(
        "tcp dport PORT counter ip saddr set 10.9.9.9",
        BROKEN + SOURCE.format("10.9.9.9"),
        RAW,
        after="; then it masqueraded the packet by its rule",
    ),
    Case(
        "tcp dport PORT counter ip saddr set 10.9.9.9",
        SOURCE.format("10.9.9.9"),
        BEFORE,
        after="; then it masqueraded the packet by its rule",
    ),
    Case("tcp dport TARGET counter ip saddr set 10.9.9.9", SOURCE.format("10.9.9.9"), LAST),
    Case("tcp dport PORT counter ip daddr set 10.244.1.99", "node-a changed the packet's destination to", BEFORE),
    *(
        Case("tcp dport TARGET counter ip daddr set 10.244.1.99", THEN.replace(":TARGET", each), at)
        for at, each in ((BEHIND, ":TARGET"), (FORWARD, ":TARGET"), (LAST, ":TARGET"))
    ),
    Case(
        "tcp dport TARGET counter ip daddr set 10.244.1.99",
        "node-b changed the packet's destination to 10.244.1.99 by the rule",
        FORWARD,
        node="node-b",
    ),
    Case("tcp dport PORT counter notrack", UNTRACKED, RAW, after="the kernel translates only what it tracks."),
    Case(
        "tcp dport PORT counter redirect to :9999",
        "node-a changed the packet's destination by the rule",
        DNAT,
        after="which belongs to no engine, and answered with a reset: no program listens there.",
    ),
    Case("tcp dport TARGET counter snat to 172.18.0.77", BROKEN + SOURCE.format("172.18.0.77"), SNAT, after=UNANSWERED),
    Case("tcp dport TARGET counter masquerade", SOURCE.format("172.18.0.2"), SNAT),
    Case("tcp dport PORT counter notrack", UNTRACKED, RAW_OUT, sender="node-a"),
    Case(
        "tcp dport TARGET counter reject with tcp reset",
        "node-a rejected the packet with a reset by",
        OUT,
        sender="node-a",
    ),
    Case(
        "tcp dport TARGET counter reject with icmp type admin-prohibited",
        "node-a rejected the packet with ICMP administratively prohibited (3/13) by the rule",
        OUT,
        sender="node-a",
    ),
    Case(
        "tcp dport PORT counter redirect to :9999",
        "node-a changed the packet's destination by the rule",
        DNAT_OUT,
        sender="node-a",
    ),
)
NFT += (
    Case(
        "udp dport PORT counter redirect to :9999",
        "node-a changed the packet's destination by the rule",
        DNAT,
        after="which belongs to no engine, and answered with ICMP port unreachable (3/3).",
        protocol="UDP",
    ),
    Case("tcp dport TARGET counter drop", DROPPED, FORWARD, after=""),
    Case("udp dport TARGET counter drop", DROPPED, LAST, after="", protocol="UDP"),
    Case("tcp dport TARGET counter reject with tcp reset", RESET, FORWARD),
    Case(
        "tcp dport PORT counter dnat to 10.244.1.99",
        "node-a changed the packet's destination to 10.244.1.99:PORT",
        DNAT,
    ),
    Case(
        "udp dport TARGET counter ip daddr set 10.244.1.99",
        THEN,
        FORWARD,
        protocol="UDP",
    ),
)
IPTABLES = (
    Case("-A PREROUTING -p tcp -m tcp --dport PORT -j NOTRACK", UNTRACKED, "raw"),
    Case(
        "-A POSTROUTING -p tcp -m tcp --dport TARGET -j SNAT --to-source 172.18.0.77",
        BROKEN + SOURCE.format("172.18.0.77"),
        "nat",
        after=UNANSWERED,
    ),
    Case("-A POSTROUTING -p tcp -m tcp --dport TARGET -j MASQUERADE", SOURCE.format("172.18.0.2"), "nat"),
    Case(
        "-A PREROUTING -p tcp -m tcp --dport TARGET -j REDIRECT --to-ports 9999",
        "node-b changed the packet's destination by the rule",
        "nat",
        node="node-b",
        after="and answered with a reset: no program listens there.",
    ),
    Case(
        "-A FORWARD -p tcp -m tcp --dport TARGET -j REJECT --reject-with icmp-host-prohibited",
        "node-a rejected the packet with ICMP host prohibited (3/10) by the rule",
        "filter",
    ),
    Case(
        "-A OUTPUT -p tcp -m tcp --dport TARGET -j REJECT --reject-with tcp-reset",
        "node-a rejected the packet with a reset",
        "filter",
        sender="node-a",
    ),
    Case("-A FORWARD -p tcp -m tcp --dport TARGET -j DROP", DROPPED, "filter", after=""),
    Case("-A FORWARD -p tcp -m tcp --dport TARGET -j REJECT --reject-with tcp-reset", RESET, "filter"),
    Case(
        "-A PREROUTING -p tcp -m tcp --dport TARGET -j DNAT --to-destination 10.244.1.99",
        "and node-b translated that to 10.244.0.10 > 10.244.1.99:TARGET by the rule",
        "nat",
        node="node-b",
    ),
)
OVER_IPV6 = {
    "10.9.9.9": "fd00:9::9",
    "10.244.1.99:TARGET": "[fd00:10:244:1::99]:TARGET",
    "10.244.1.99:PORT": "[fd00:10:244:1::99]:PORT",
    "10.244.0.10": "fd00:10:244::a",
    "10.244.1.99": "fd00:10:244:1::99",
    "172.18.0.77": "fd00:172:18::77",
    "172.18.0.2": "fd00:172:18::2",
    "ip saddr": "ip6 saddr",
    "ip daddr": "ip6 daddr",
    "with icmp type": "with icmpv6 type",
    "icmp-host-prohibited": "icmp6-adm-prohibited",
    "ICMP host prohibited (3/10)": "ICMP administratively prohibited (1/1)",
    "administratively prohibited (3/13)": "administratively prohibited (1/1)",
    "port unreachable (3/3)": "port unreachable (1/4)",
}


def over(family: str, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """The cases with the addresses and words of a family.

    What a node sends untracked comes back from the router. Over IPv4 the kernel refuses it, since the source is its own
    (``fib_validate_source``). Over IPv6 it takes it, tracks and translates it then, and the packet arrives.
    """
    if family == "IPv6":
        cases = tuple(each for each in cases if each.at != RAW_OUT)

    def spelled(text: str) -> str:
        words = OVER_IPV6 if family == "IPv6" else {}
        pattern = "|".join(map(re.escape, words)) or "(?!)"
        return re.sub(pattern, lambda found: words[found[0]], text)

    return tuple(
        replace(each, rule=spelled(each.rule), why=spelled(each.why), after=spelled(each.after)) for each in cases
    )


def written(cases: tuple[Case, ...], family: str, folder: Path) -> Path:
    rules: dict[str, dict[object, list[str]]] = {"node-a": {}, "node-b": {}}
    probes, services, listening = [], "", list[dict[str, object]]()
    for number, case in enumerate(cases, 1):
        text = case.rule.replace("PORT", str(PORT + number)).replace("TARGET", str(TARGET + number))
        rules[case.node].setdefault(case.at, []).append(text)
        expect = {"outcome": "delivered", "source": "preserved" if case.sender == "client" else "masqueraded"}
        to = {"service": f"s{number}", "via": "clusterIP"}
        send = {"protocol": case.protocol}
        probes.append({"name": f"rule {number}.", "from": case.sender, "to": to, "send": send, "expect": expect})
        listening.append({"port": TARGET + number, "protocol": case.protocol})
        ports = {"port": PORT + number, "targetPort": TARGET + number, "protocol": case.protocol}
        spec = {"selector": {"app": "web"}, "ports": [ports]}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{number}"}, "spec": spec}
        services += f"---\n{json.dumps(service)}\n"
    web = {"nodes": ["node-b"], "labels": {"app": "web"}, "ports": listening}
    spec = {
        "network": {"families": [family]},
        "nodes": {node: {"leftovers": _leftovers(own, family)} if own else {} for node, own in rules.items()},
        "pods": {"client": {"nodes": ["node-a"]}, "web": web},
        "probes": probes,
    }
    scenario = {"apiVersion": "proxylab/v1", "kind": "Scenario", "metadata": {"name": "rewriting"}, "spec": spec}
    file = folder / "rewriting.lab.yaml"
    file.write_text(f"{json.dumps(scenario)}\n{services}", encoding="utf-8")
    return file


def _leftovers(rules: dict[object, list[str]], family: str) -> dict[str, str]:
    if all(isinstance(at, str) for at in rules):
        tool = "ip6tables" if family == "IPv6" else "iptables"
        return {tool: "".join(f"*{at}\n{chr(10).join(texts)}\nCOMMIT\n" for at, texts in rules.items())}
    chains = ""
    for number, (at, texts) in enumerate(rules.items()):
        assert isinstance(at, tuple)
        hook, kind, priority = at
        head = f"type {kind} hook {hook} priority {priority}; policy accept;"
        chains += f"  chain c{number} {{\n    {head}\n    {f'{chr(10)}    '.join(texts)}\n  }}\n"
    return {"nft": f"table {'ip6' if family == 'IPv6' else 'ip'} acme {{\n{chains}}}\n"}


EACH_ONCE = {("nft", "IPv4", "iptables"), ("nft", "IPv6", "nftables"), ("iptables", "IPv6", "iptables")}
"""Each tool, family and mode once, and the tool that rewrites in most ways twice."""


# In every combination with --all: where a rule of a tool is read, no engine and no family takes part.
@pytest.mark.parametrize(
    ("of_a_tool", "family", "engine"),
    [
        pytest.param(of_a_tool, family, f"embedded/{mode}", id=f"{tool}-{family}-embedded/{mode}", marks=marks)
        for tool, of_a_tool in (("nft", NFT), ("iptables", IPTABLES))
        for family in ("IPv4", "IPv6")
        for mode in ("iptables", "nftables")
        for marks in [[] if (tool, family, mode) in EACH_ONCE else [pytest.mark.thorough]]
    ],
)
def test_the_rule_of_another_program_is_named(
    of_a_tool: tuple[Case, ...], family: str, engine: str, cli: CommandLine, tmp_path: Path
) -> None:
    cases = over(family, of_a_tool)
    file = written(cases, family, tmp_path)
    shown = re.sub(r"\s+", " ", cli.type("run", str(file), "--engine", engine, "--no-bundles").output)
    wrong = []
    for number, case in enumerate(cases, 1):
        why = shown.partition(f": FAIL: rule {number}.")[2].partition(" why: ")[2].partition(" reproduce: ")[0]
        told = [case.why, case.rule.partition(" counter")[0], case.after]
        missing = [
            each
            for each in told
            if each.replace("PORT", str(PORT + number)).replace("TARGET", str(TARGET + number)) not in why
        ]
        if missing:
            wrong.append(f"{case.rule} at {case.at} lacks {missing}: {why}")
    assert "\n".join(wrong) == ""
