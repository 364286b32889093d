"""The classes of iptables rules, and the mutants of a rule: each match loosened, each target changed.

A class is a rule in the words of iptables(8), without hashes, addresses, ports, marks and periods: one function of the
renderer writes all of its rules. kube-proxy's comments name the frontend, so they are part of the class.

A comment matches every packet, so no mutant lacks it. Table nat allows neither DROP nor REJECT.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from msgspec import Struct

from proxylab.engines.embedded.iptables.meaning import rule_meaning, split_options
from proxylab.engines.embedded.mutation import ABSENT, MutantLines

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


class _Rule(Struct, frozen=True):
    """One rule in parts: its verb and chain; the options of each match, by its module or short option; its target."""

    head: str
    matches: Mapping[str, Sequence[_Option]]
    target: Sequence[_Option]

    @classmethod
    def read(cls, line: str) -> "_Rule":
        """A line with ``-A`` or ``-I``."""
        words = shlex.split(line)
        matches: dict[str, list[_Option]] = {}
        target: list[_Option] = []
        module = ""
        for option in split_options(words[2:]):
            name = option[option[0] == "!"]
            if target or name == "-j":
                target.append(option)
                continue
            if name == "-m":
                module = option[1]
                if module in _TRANSPORTS:
                    continue  # -p implies it
            of_module = name == "-m" or (name.startswith("--") and name != "--dport")
            matches.setdefault(module if of_module else name, []).append(option)
        return cls(" ".join(words[:2]), matches, target)

    def line(self, matches: Mapping[str, Sequence[_Option]], target: Sequence[_Option] | None = None) -> str:
        """The rule with some other matches, none where one is empty, or with another target."""
        parts = [*{**self.matches, **matches}.values(), self.target if target is None else target]
        words = [word for part in parts for option in part for word in option]
        return " ".join([self.head, *[f'"{word}"' if " " in word else word for word in words]])


def _classes(text: str) -> list[str]:
    found, table = [], ""
    for line in text.split("\n"):
        if line.startswith(("*", "COMMIT")):
            table = line[1:] * (line[0] == "*")
        found.append(_class(table, line) if table and line.startswith(("-A ", "-I ")) else "")
    return found


def _class(table: str, line: str) -> str:
    """The class of a rule, however iptables-save or kube-proxy orders its options."""
    words = shlex.split(line)
    options = sorted(map(_without_names, rule_meaning(words[2:])), key=_position)
    chain = _HASH.sub(r"\1*", words[1])
    return " ".join([table, chain, *[word for option in options for word in option]])


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
    rule = _Rule.read(line)
    found: dict[str, Sequence[str]] = {ABSENT: ()}
    for name, options in rule.matches.items():
        if name != "comment":
            found |= {change: [rule.line({name: each}) for each in wider] for change, wider in _wider(name, options)}
    verdicts = _VERDICTS.get(rule.target[0][1], ()) if rule.target else ()
    for verdict in verdicts:
        if verdict != "DROP" or not rule_class.startswith("nat "):
            found[f"-j {verdict}"] = (rule.line({}, [("-j", verdict)]),)
    for change, target in _other_targets(rule.target):
        found[change] = (rule.line({}, target),)
    return found


def _wider(name: str, options: Sequence[_Option]) -> Iterator[tuple[str, Sequence[Sequence[_Option]]]]:
    """The options of each rule that can stand in place of one with this match, by the change."""
    first = next(each for each in options if each[0] != "-m")
    match name:
        case "-p":
            # A port needs a protocol that has ports.
            yield "-p of TCP and UDP", [[("-p", kind)] for kind in dict.fromkeys((first[-1], "tcp", "udp"))]
        case "statistic":
            yield "without --probability", [[]]
            half = [(each[0], f"{float(each[1]) / 2:.10f}") if each[0] == "--probability" else each for each in options]
            yield "half the --probability", [half]
        case "recent" if ("--rcheck",) in options:
            yield "without --rcheck", [[]]
            yield "without --seconds", [[each for each in options if each[0] not in ("--seconds", "--reap")]]
        case "recent":
            yield "without --set", [[]]
        case _:
            is_negated = first[0] == "!"
            yield f"without {'! ' * is_negated}{first[is_negated]}", [[]]


def _other_targets(target: Sequence[_Option]) -> Iterator[tuple[str, Sequence[_Option]]]:
    """The target with another value of each of its options."""
    for option in target[1:]:
        rest = [each for each in target if each != option]
        match option:
            case ("--random-fully",):
                yield "without --random-fully", rest
            case (("--or-mark" | "--xor-mark") as name, bits):
                yield f"{name} of another bit", [*rest, (name, f"{int(bits, 0) << 1:#08x}")]
            case ("--to-destination", to):
                host, _, port = to.rpartition(":")
                other = str(ip_address(host.strip("[]")) + 1)
                other = f"[{other}]" if host.startswith("[") else other
                yield "DNAT to another address", [*rest, ("--to-destination", f"{other}:{port}")]
                yield "DNAT to another port", [*rest, ("--to-destination", f"{host}:{int(port) % 65535 + 1}")]


def _suggestion(rule_class: str, change: str) -> str:
    who = next(text for beginning, text in _PACKETS if rule_class.startswith(beginning) or beginning in rule_class[4:])
    return f"{who}: {next(text for part, text in _DIFFERENCES if part in change)}"


def _met(table: str, _chain: str, text: str) -> str:
    return _class(table, text) if text.startswith("-A ") else ""


MUTANT_LINES: Final = MutantLines(_classes, _mutants, _suggestion, _met)
