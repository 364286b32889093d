"""The classes of iptables rules, and the mutants of a rule: each match loosened, each target changed.

A class is a rule in the words of iptables(8), without hashes, addresses, ports, marks and periods: one function of the
renderer writes all of its rules. kube-proxy's comments name the frontend, so they are part of the class.

A comment matches every packet, so no mutant lacks it. Table nat allows neither DROP nor REJECT.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.engines.embedded.iptables.meaning import rule_meaning
from proxylab.engines.embedded.mutation import ABSENT, Equivalent, MutantLines
from proxylab.engines.loaded_rules import LoadedRule
from proxylab.rules.iptables import options_of, print_rule, read_rule, read_tables
from proxylab.rules.rule import Action, Match, Rule
from proxylab.verdict.counted_rules import is_engines_chain

_Option = tuple[str, ...]

_ORDER: Final = ("-s", "-d", "-i", "-p", "--dport", "", "-j", "--set-xmark", "--to-destination", "#")
"""Where a class has an option; the empty text stands for all others."""

_SHORT: Final = {"--source": "-s", "--destination": "-d", "--in-interface": "-i", "--protocol": "-p", "--jump": "-j"}
_ANY: Final = {
    "--dport": "PORT",
    "--in-interface": "DEVICE",
    "--nfacct-name": "COUNTER",
    "--probability": "P",
    "--protocol": "PROTOCOL",
    "--seconds": "SECONDS",
    "--to-destination": "ENDPOINT",
    "--to-ports": "PORT",
    "--vaddr": "ADDRESS",
    "--vport": "PORT",
    "--vproto": "PROTOCOL",
}
_HASH: Final = re.compile(r"\b(KUBE-(?:SVC|SVL|EXT|FW|SEP|XLB)-)[A-Z2-7]{16}\b")
_BITS: Final = re.compile(r"0x0*[1-9a-f][0-9a-f]*")
_TRANSPORTS: Final = ("tcp", "udp", "sctp")
_WITH_PORTS: Final = ("DNAT", "REDIRECT")
"""Targets that need a protocol with ports."""
_VERDICTS: Final = {
    "ACCEPT": ("DROP", "RETURN"),
    "DROP": ("ACCEPT", "RETURN"),
    "REJECT": ("ACCEPT", "DROP", "RETURN"),
    "RETURN": ("ACCEPT", "DROP"),
}

_PACKETS: Final = (
    ("# SERVICE cluster IP", "a sender that dials the cluster IP"),
    ("# SERVICE external IP", "a sender that dials the external IP"),
    ("# SERVICE loadbalancer IP", "a sender that dials the load-balancer IP"),
    ("# SERVICE has no endpoints", "a sender that dials the frontend of a Service without endpoints"),
    (
        "# SERVICE has no local endpoints",
        "a sender that dials a frontend under policy Local on a node without endpoint",
    ),
    ("KUBE-FIREWALL", "a neighbour of the node that sends to 127.0.0.0/8"),
    ("KUBE-PROXY-FIREWALL", "a sender outside loadBalancerSourceRanges that dials the load-balancer IP"),
    ("filter KUBE-NODEPORTS", "a sender that dials the health-check node port while the policy of INPUT is DROP"),
    ("filter INPUT -j KUBE-NODEPORTS", "the health check of a load balancer while the policy of INPUT is DROP"),
    ("KUBE-FORWARD", "a sender outside of a node whose policy of FORWARD is DROP"),
    ("filter INPUT", "an outside host that dials an address of the node"),
    ("filter FORWARD", "a pod or an outside host that dials through the node"),
    ("OUTPUT", "a node that dials by itself"),
    ("nat KUBE-EXT-*", "a sender that dials a NodePort, external IP or load-balancer IP"),
    ("nat KUBE-SVL-*", "a sender that dials a frontend under policy Local"),
    ("nat KUBE-NODEPORTS", "a sender that dials a NodePort"),
    ("nat KUBE-SERVICES", "a sender that dials a NodePort"),
    ("MASQ", "a sender whose packets are masqueraded"),
    ("nat KUBE-POSTROUTING", "a sender whose packets are masqueraded, beside one whose packets are not"),
    ("", "a sender that dials a Service with several endpoints"),
)
"""Which packets meet a rule of a class that begins so, or has such a part."""

_DIFFERENCES: Final = (
    (ABSENT, "expect what the rule does to it (delivered, rejected, dropped, its source or `at`)"),
    ("without -d", "dial another address at the same port, and expect it untranslated"),
    ("without ! -d", "dial the excepted address, and expect it untranslated"),
    ("without -s", "send from an address outside the network as well, and expect the other outcome"),
    ("without ! -s", "send from an address inside the network as well, and expect the other outcome"),
    ("without --dport", "dial another port of the address, and expect it untranslated, or served by its own Service"),
    ("without -p", "send an echo request to the address, and expect it untranslated"),
    ("-p of TCP", "dial the port over the other transport, and expect it untranslated"),
    ("--dst-type", "dial the port at an address of another host through the node, and expect it untranslated"),
    ("--src-type", "send from another host as well, and expect the other outcome"),
    ("--ctstate", "keep a stream running while the rule appears, and expect that it loses nothing"),
    ("--mark", "send what no rule marks as well, and expect the other outcome"),
    ("--probability", "expect `spread: even` of enough flows"),
    ("--seconds", "let the time-out of ClientIP affinity pass, and expect another endpoint"),
    ("--rcheck", "set no ClientIP affinity that is not used: expect all endpoints of several clients"),
    ("--set", "expect ClientIP affinity to keep one endpoint"),
    ("--nfacct-name", "expect the metric that the counter feeds"),
    ("--random-fully", "dial from many clients with one source port, and expect random source ports"),
    ("bit", "expect its source; a packet with another mark keeps its own"),
    ("DNAT", "expect the pod and the port"),
    ("-j", "expect the outcome, with `at` where it is lost or refused"),
    ("", "expect the other outcome of a packet that differs in this match alone"),
)
"""What a probe must do for a change with such a part to show."""


class _Parts(Struct, frozen=True):
    """A rule in parts that a mutant may lack: the conditions of each module or short option, and its target."""

    rule: Rule
    matches: Mapping[str, Sequence[Match]]

    @classmethod
    def of(cls, rule: Rule) -> "_Parts":
        matches: dict[str, list[Match]] = {}
        module = ""
        for match in rule.matches:
            if match.name == "-m":
                module = match.value
                if module in _TRANSPORTS:
                    continue  # -p implies it
            of_module = match.name == "-m" or (match.name.startswith("--") and match.name != "--dport")
            matches.setdefault(module if of_module else match.name, []).append(match)
        return cls(rule, matches)

    def line(self, matches: Mapping[str, Sequence[Match]], target: Action | None = None) -> str:
        """The rule with some other conditions, none where one is empty, or with another target."""
        conditions = chain.from_iterable({**self.matches, **matches}.values())
        actions = self.rule.actions if target is None else (target,)
        return print_rule(replace(self.rule, parts=(*conditions, *actions)))


def _classes(text: str) -> list[str]:
    found, table = [], ""
    for line in text.split("\n"):
        if line.startswith(("*", "COMMIT")):
            table = line[1:] * (line[0] == "*")
        found.append(_class(table, line) if table and line.startswith(("-A ", "-I ")) else "")
    return found


def _class(table: str, line: str) -> str:
    """The class of a rule, however iptables-save or kube-proxy orders its options."""
    rule = read_rule(line)
    if rule is None:
        return ""
    options = sorted(map(_without_names, rule_meaning(rule)), key=_position)
    return " ".join([table, _HASH.sub(r"\1*", rule.chain), *[word for option in options for word in option]])


def _position(option: _Option) -> tuple[int, _Option]:
    name = option[option[:1] == ("!",)] if option else "#"
    return _ORDER.index(name if name in _ORDER else ""), option


def _without_names(option: _Option) -> _Option:
    name, *values = option[option[0] == "!" :]
    if name == "--comment":
        return _about(values[0])
    if name in ("--source", "--destination"):
        values = [_network(values[0])]
    elif name in _ANY:
        values = [_ANY[name]]
    else:
        values = [_BITS.sub("MARK", _HASH.sub(r"\1*", value)) for value in values]
    return (*option[: option[0] == "!"], _SHORT.get(name, name), *values)


def _network(text: str) -> str:
    network = ip_network(text)
    if network.is_loopback:
        return "LOOPBACK"
    if network.prefixlen == 0:
        return "ANYWHERE"
    return "ADDRESS" if network.num_addresses == 1 else "NETWORK"


def _about(comment: str) -> _Option:
    """A comment without names; nothing where it has nothing else, since large clusters lack such comments."""
    words = ["SERVICE" if "/" in word else word for word in _HASH.sub(r"\1*", comment).split()]
    return () if "->" in words or words == ["SERVICE"] else ("#", " ".join(words))


def _mutants(rule_class: str, line: str) -> dict[str, Sequence[str]]:
    rule = read_rule(line)
    if rule is None:
        return {}
    parts = _Parts.of(rule)
    found: dict[str, Sequence[str]] = {ABSENT: ()}
    for name, matches in parts.matches.items():
        if name != "comment":
            found |= {change: [parts.line({name: each}) for each in wider] for change, wider in _wider(name, matches)}
    if {"-p", "--dport"} <= {*parts.matches} and rule.target not in _WITH_PORTS:
        found["without -p"] = (parts.line({"-p": (), "--dport": ()}),)
    for verdict in _VERDICTS.get(rule.target, ()):
        if verdict != "DROP" or not rule_class.startswith("nat "):
            found[f"-j {verdict}"] = (parts.line({}, Action(verdict)),)
    for change, target in _other_targets(rule):
        found[change] = (parts.line({}, target),)
    return found


def _wider(name: str, matches: Sequence[Match]) -> Iterator[tuple[str, Sequence[Sequence[Match]]]]:
    """The conditions of each rule that can stand in place of one with these, by the change."""
    first = next(each for each in matches if each.name != "-m")
    match name:
        case "-p":
            # A port needs a protocol that has ports.
            yield "-p of TCP and UDP", [[Match("-p", (kind,))] for kind in dict.fromkeys((first.value, "tcp", "udp"))]
        case "statistic":
            yield "without --probability", [[]]
            half = [
                Match(each.name, (f"{float(each.value) / 2:.10f}",)) if each.name == "--probability" else each
                for each in matches
            ]
            yield "half the --probability", [half]
        case "recent" if any(each.name == "--rcheck" for each in matches):
            yield "without --rcheck", [[]]
            yield "without --seconds", [[each for each in matches if each.name not in ("--seconds", "--reap")]]
        case "recent":
            yield "without --set", [[]]
        case _:
            yield f"without {'! ' * first.negated}{first.name}", [[]]


def _other_targets(rule: Rule) -> Iterator[tuple[str, Action]]:
    """The target with another value of each of its options."""
    if (action := rule.action) is None:
        return
    for option in options_of(action):
        rest = [word for each in options_of(action) if each != option for word in (each.name, *each.values)]
        match option.name, option.value:
            case "--random-fully", _:
                yield "without --random-fully", replace(action, words=tuple(rest))
            case ((("--or-mark" | "--xor-mark") as name), bits):
                other = f"{int(bits, 0) << 1:#08x}"
                yield f"{name} of another bit", replace(action, words=(*rest, name, other))
            case "--to-destination" as name, to:
                host, _, port = to.rpartition(":")
                address = str(ip_address(host.strip("[]")) + 1)
                address = f"[{address}]" if host.startswith("[") else address
                for change, end in (("address", f"{address}:{port}"), ("port", f"{host}:{int(port) % 65535 + 1}")):
                    yield f"DNAT to another {change}", replace(action, words=(*rest, name, end))


def _suggestion(rule_class: str, change: str) -> str:
    who = next(text for beginning, text in _PACKETS if rule_class.startswith(beginning) or beginning in rule_class[4:])
    return f"{who}: {next(text for part, text in _DIFFERENCES if part in change)}"


def _met(table: str, _chain: str, text: str) -> str:
    return _class(table, text) if text.startswith("-A ") else ""


def loaded_rules(dump: str) -> Iterator[LoadedRule]:
    """The rules of a dump of one family that stand in kube-proxy's chains, or lead to one."""
    for table in read_tables(dump):
        for saved in table.rules:
            rule = read_rule(saved.text)
            if rule is not None and (is_engines_chain(rule.chain) or is_engines_chain(rule.target)):
                kind = _class(table.name, saved.text)
                where = " ".join(kind.split(" ", 2)[:2])
                yield LoadedRule(table.name, rule.chain, saved.text, where, kind)


MUTANT_LINES: Final = MutantLines(_classes, _mutants, _suggestion, _met)


_TO_ENDPOINT: Final = (
    "nat KUBE-SEP-* -p PROTOCOL -j DNAT --to-destination ENDPOINT",
    "nat KUBE-SEP-* -p PROTOCOL --name KUBE-SEP-* --set -j DNAT --to-destination ENDPOINT",
)
_MARKS_BY_NETWORK: Final = (
    "nat KUBE-SVC-* ! -s NETWORK -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-MARK-MASQ # SERVICE cluster IP"
)
_MARKS_BY_DEVICE: Final = (
    "nat KUBE-SVC-* -d ADDRESS ! -i DEVICE -p PROTOCOL --dport PORT -j KUBE-MARK-MASQ # SERVICE cluster IP"
)
_MARKS_ALL: Final = "nat KUBE-SVC-* -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-MARK-MASQ # SERVICE cluster IP"
_MARKS_LOCAL: Final = (
    "nat KUBE-SVL-* ! -s NETWORK -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-MARK-MASQ # SERVICE cluster IP"
)

EQUIVALENTS: Final = (
    Equivalent(
        ("nat KUBE-FW-* # other traffic to SERVICE will be dropped by KUBE-PROXY-FIREWALL",),
        (ABSENT,),
        "a rule without target does nothing but count",
    ),
    Equivalent(
        (*_TO_ENDPOINT, _MARKS_BY_NETWORK, _MARKS_BY_DEVICE, _MARKS_ALL, _MARKS_LOCAL),
        ("-p of TCP and UDP",),
        "a packet comes into the chain only by rules of the same service port, and these match its protocol",
    ),
    Equivalent(
        (_MARKS_BY_NETWORK, _MARKS_BY_DEVICE),
        ("without -d", "without --dport", "without -p"),
        "packets to other addresses and ports come from KUBE-EXT-, which has marked them before, or which sends only "
        "pods here, and a pod does not match this rule",
    ),
    Equivalent(
        (_MARKS_ALL, _MARKS_LOCAL),
        ("without --dport", "without -p"),
        "a packet to the cluster IP comes into the chain only by the rule for this port of it",
    ),
    Equivalent(
        (
            "filter FORWARD --ctstate NEW -j KUBE-EXTERNAL-SERVICES # kubernetes externally-visible service portals",
            "filter FORWARD --ctstate NEW -j KUBE-SERVICES # kubernetes service portals",
        ),
        ("without --ctstate",),
        "KUBE-FORWARD comes first: it accepts the packets of open connections and drops invalid ones (with "
        "tcpBeLiberal only malformed packets are left, which no probe sends)",
    ),
    Equivalent(
        ("filter KUBE-FORWARD --ctstate INVALID --nfacct-name COUNTER -j DROP",),
        ("without --nfacct-name",),
        "the counter matches every packet",
    ),
    Equivalent(
        ("filter OUTPUT -j KUBE-FIREWALL",),
        (ABSENT,),
        "what a node itself sends to 127.0.0.0/8 goes by device lo into the same node, where INPUT leads it to the "
        "same rule; no probe binds its socket to another device",
    ),
)
"""Mutants that no packet of any scenario can tell from the rule, each with its proof."""
