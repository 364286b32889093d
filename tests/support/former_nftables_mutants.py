"""The classes of what mode nftables loads, and their mutants: rules, elements of sets and maps, sets of clients.

A class is a line without names, addresses, ports and numbers; both families have the same ones. A rule of nft is some
matches, and then a statement. An element stays where it is, since a later load may delete it: without an effect, it
has the verdict ``continue``, as if the map did not have it. Elements of a set have no verdict, and are left out
together with their deletion.
"""

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from proxylab.engines.embedded.mutation import ABSENT, Equivalent, MutantLines

_RULE: Final = re.compile(r"(add rule ip6? kube-proxy (\S+)) (.*)")
_ELEMENT: Final = re.compile(
    r"(?:add|delete) element ip6? kube-proxy (\S+) \{ .+?(?: comment \"[^\"]*\")?(?: : (.*))? \}"
)
_CLIENTS: Final = re.compile(r"(add set ip6? kube-proxy (\S+) .* timeout )\d+s(.*)")
_SETS: Final = ("cluster-ips", "hairpin-connections", "nodeport-ips")

_OWN_NAME: Final = re.compile(r"\b(service|local|external|firewall|endpoint|affinity)-[A-Z2-7]{8}-[^\s}]+")
_PROTOCOL: Final = re.compile(r"(?<=meta l4proto )\w+")
_CHOICES: Final = re.compile(r"mod \d+ (v?map) \{ [^}]* \}")
_BITS: Final = re.compile(r"0x[0-9a-f]+")
_DEVICE: Final = re.compile(r'(?<=iifname )((?:!= )?)"[^"]*"')
_WORD: Final = re.compile(r"[^\s{},]+")

_MATCH: Final = re.compile(
    r"(ct state new|ct status dnat|mark and \S+ != 0|fib [sd]addr type local|meta l4proto \w+(?= dnat)"
    r'|iifname (?:!= )?"[^"]*"|ip6? saddr \. [^@]*@\S+|ip6? [sd]addr (?:!= )?(?:\{[^}]*\}|(?!\.)\S+)) '
)
_ENDPOINT: Final = re.compile(
    r"(?P<before>to | : )(?P<host>[0-9.]+|\[?[0-9a-f:]+\]?)(?P<between>:| \. )(?P<port>\d+)\b"
)
_VERDICTS: Final = {"drop": ("accept", "return"), "reject": ("accept", "drop")}
_VERDICTS_OF_ELEMENTS: Final = {"drop": ("accept", "goto reject-chain"), "goto reject-chain": ("accept", "drop")}


def _classes(text: str) -> list[str]:
    return [_class(line) for line in text.split("\n")]


def _class(line: str) -> str:
    if rule := _RULE.fullmatch(line):
        return f"{_own(rule[2])} {_abstract(rule[3])}"
    if element := _ELEMENT.fullmatch(line):
        if element[1] in _SETS:
            return f"element {element[1]}"
        return f"element {element[1]} : {_own(element[2])}" if element[2] else ""
    if clients := _CLIENTS.fullmatch(line):
        return f"set {_own(clients[2])}"
    return ""


def _own(text: str) -> str:
    return _OWN_NAME.sub(r"\1-*", text)


def _abstract(text: str) -> str:
    """A rule without names and numbers. Its comment, if it has one, is the same in all rules of the class."""
    rule, quote, comment = text.partition(" comment ")
    rule = _CHOICES.sub(r"mod N \1 { … }", _BITS.sub("MARK", _PROTOCOL.sub("PROTOCOL", _own(rule))))
    rule = _DEVICE.sub(r"\1DEVICE", rule)
    rule = re.sub(r"(?<=saddr != )\{[^}]*\}|(?<=daddr )\{[^}]*\}", "{ NETWORKS }", rule)
    return _WORD.sub(lambda word: _without_number(word[0]), rule) + quote + comment


def _without_number(word: str) -> str:
    if word == "ip6":
        return "ip"
    if "." not in word and ":" not in word:
        return word
    try:
        network = ip_network(word)
    except ValueError:
        return "ENDPOINT" if re.fullmatch(r"[0-9.]+:\d+|\[[0-9a-f:]+\]:\d+", word) else word
    return "LOOPBACK" if network.is_loopback else "ADDRESS" if network.num_addresses == 1 else "NETWORK"


def _mutants(_rule_class: str, line: str) -> dict[str, Sequence[str]]:
    if rule := _RULE.fullmatch(line):
        return {ABSENT: (), **dict(_of_rule(rule[1], rule[3]))}
    if clients := _CLIENTS.fullmatch(line):
        return {"a time-out of a day": (f"{clients[1]}86400s{clients[3]}",)}
    if (element := _ELEMENT.fullmatch(line)) and element[2]:
        others = ("continue", *_VERDICTS_OF_ELEMENTS.get(element[2], ()))
        head = line.removesuffix(f" : {element[2]} }}")
        return {ABSENT if each == "continue" else f": {each}": (f"{head} : {each} }}",) for each in others}
    return {ABSENT: ()}


def _of_rule(head: str, text: str) -> Iterator[tuple[str, Sequence[str]]]:
    """The rule with one match less, or with another statement."""
    matches: list[str] = []
    at = 0
    while match := _MATCH.match(text, at):
        matches.append(match[1])
        at = match.end()
    statement = text[at:]
    for match_text in matches:
        rest = [each for each in matches if each != match_text]
        if match_text.startswith("meta l4proto"):
            kinds = ", ".join(dict.fromkeys((match_text.split()[-1], "tcp", "udp")))
            yield "meta l4proto of TCP and UDP", (" ".join([head, *rest, f"meta l4proto {{ {kinds} }}", statement]),)
        else:
            yield f"without {_abstract(match_text)}", (" ".join([head, *rest, statement]),)
    for change, other in _statements(statement):
        yield change, (" ".join([head, *matches, other]),)


def _statements(statement: str) -> Iterator[tuple[str, str]]:
    """Other statements than this one."""
    first, _, rest = statement.partition(" ")
    for verdict in _VERDICTS.get(first, ()):
        yield verdict, f"{verdict} {rest}".strip()
    if "fully-random" in statement:
        yield "without fully-random", statement.replace(" fully-random", "")
    if setting := re.search(r"mark set mark (or|xor) (0x[0-9a-f]+)", statement):
        other = setting[0].replace(setting[2], f"{int(setting[2], 16) << 1:#08x}")
        yield f"{setting[1]} of another bit", statement.replace(setting[0], other)
    if (choices := re.search(r"mod (\d+) ", statement)) and choices[1] != "1":
        yield "without the last choice", statement.replace(choices[0], f"mod {int(choices[1]) - 1} ")
    if first == "dnat":
        yield "dnat to another address", _ENDPOINT.sub(lambda to: _moved(to, 1, 0), statement)
        yield "dnat to another port", _ENDPOINT.sub(lambda to: _moved(to, 0, 1), statement)


def _moved(to: "re.Match[str]", addresses: int, ports: int) -> str:
    host = str(ip_address(to["host"].strip("[]")) + addresses)
    host = f"[{host}]" if to["host"].startswith("[") else host
    return f"{to['before']}{host}{to['between']}{(int(to['port']) - 1 + ports) % 65535 + 1}"


_PACKETS: Final = (
    ("element cluster-ips", "a sender that dials a cluster IP at a port that no Service has"),
    ("element hairpin", "a pod that dials a Service and reaches itself"),
    ("element firewall-ips", "a sender outside loadBalancerSourceRanges that dials the load-balancer IP"),
    ("firewall-", "a sender outside loadBalancerSourceRanges that dials the load-balancer IP"),
    ("element no-endpoint-", "a sender that dials a frontend of a Service without (local) endpoints"),
    ("element service-nodeports", "a sender that dials a NodePort"),
    ("external-", "a sender that dials a NodePort, external IP or load-balancer IP"),
    ("local-", "a sender that dials a frontend under policy Local"),
    ("masquerading", "a sender whose packets are masqueraded, beside one whose packets are not"),
    ("cluster-ips-check", "a sender that dials a cluster IP at a port that no Service has"),
    ("nodeport-endpoints-check", "a sender that dials a NodePort of a Service without endpoints"),
    ("service-endpoints-check", "a sender that dials an address of a Service without endpoints"),
    ("filter-", "a pod, a node or an outside host that dials what the chain refuses"),
    ("", "a sender that dials a Service"),
)
"""Which packets meet a class that begins so."""

_DIFFERENCES: Final = (
    (ABSENT, "expect what it does to the packet (delivered, rejected, dropped, its source or `at`)"),
    ("without ct state", "keep a stream running while the rule appears, and expect that it loses nothing"),
    ("without ct status", "send from the pod to itself past all Services, and expect its own source"),
    ("l4proto of", "dial the port over the other transport, and expect it untranslated"),
    ("daddr", "dial another address at the same port, and expect it untranslated"),
    ("saddr", "send from another address as well, and expect the other outcome"),
    ("choice", "expect `spread: even` of enough flows"),
    ("day", "let the time-out of ClientIP affinity pass, and expect another endpoint"),
    ("fully-random", "dial from many clients with one source port, and expect random source ports"),
    ("bit", "expect its source; a packet with another mark keeps its own"),
    ("dnat", "expect the pod and the port"),
    ("", "expect the outcome, with `at` where the packet is lost or refused"),
)
"""What a probe must do for a change with such a part to show."""


def _suggestion(rule_class: str, change: str) -> str:
    who = next(text for beginning, text in _PACKETS if rule_class.startswith(beginning))
    return f"{who}: {next(text for part, text in _DIFFERENCES if part in change)}"


def _met(_table: str, chain: str, _text: str) -> str:
    return f"{_own(chain)} "


MUTANT_LINES: Final = MutantLines(_classes, _mutants, _suggestion, _met)


_TRANSLATIONS: Final = (
    "endpoint-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "local-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "local-* meta l4proto PROTOCOL dnat ip addr . port to numgen random mod N map { … }",
    "service-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "service-* meta l4proto PROTOCOL dnat ip addr . port to numgen random mod N map { … }",
)

EQUIVALENTS: Final = (
    Equivalent(
        _TRANSLATIONS,
        ("meta l4proto of TCP and UDP",),
        "a packet comes into the chain only by elements of the same service port, whose keys have its protocol",
    ),
)
"""Mutants that no packet of any scenario can tell from the rule, each with its proof."""
