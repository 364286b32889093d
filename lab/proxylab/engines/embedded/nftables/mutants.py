"""The classes of what mode nftables loads, and their mutants: rules, elements of sets and maps, sets of clients.

A class is a line without names, addresses, ports and numbers; both families have the same ones. A rule of nft is some
matches, and then a statement. An element stays where it is, since a later load may delete it: without an effect, it
has the verdict ``continue``, as if the map did not have it. Elements of a set have no verdict, and are left out
together with their deletion.
"""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from msgspec.structs import replace

from proxylab.engines.embedded.mutation import ABSENT, Equivalent, MutantLines
from proxylab.engines.embedded.nftables.names import AFFINITY, TABLE, without_hash
from proxylab.engines.loaded_rules import LoadedRule
from proxylab.evidence.words import endpoint
from proxylab.rules.nft_commands import NftCommand, print_command, read_command
from proxylab.rules.nft_listing import elements_of, print_element, read_element, read_listing
from proxylab.rules.nftables import print_rule, read_rule, words_of
from proxylab.rules.rule import Action, Match, Rule

_SETS: Final = ("cluster-ips", "hairpin-connections", "nodeport-ips")
_OF_ENDPOINTS: Final = frozenset({"map", "vmap"})
_VERDICTS: Final = {"drop": ("accept", "return"), "reject": ("accept", "drop")}
_VERDICTS_OF_ELEMENTS: Final = {"drop": ("accept", "goto reject-chain"), "goto reject-chain": ("accept", "drop")}
_TIME_OUT: Final = "timeout"
_DAY: Final = "86400s"
_RANDOM: Final = "fully-random"


def _classes(text: str) -> list[str]:
    return [_class(line) for line in text.split("\n")]


def _class(line: str) -> str:
    match read_command(line):
        case NftCommand(verb="add", kind="rule") as command:
            return _rule_class(command.name, command.text)
        case NftCommand(verb="add" | "delete", kind="element", name=name) if name in _SETS:
            return f"element {name}"
        case NftCommand(verb="add" | "delete", kind="element") as command:
            verdict = _verdict(command)
            return f"element {command.name} : {_without_names(verdict)}" if verdict else ""
        case NftCommand(verb="add", kind="set", text=text) as command if _TIME_OUT in text.split():
            return f"set {without_hash(command.name)}"
    return ""


def _rule_class(chain: str, text: str) -> str:
    return f"{without_hash(chain)} {' '.join(map(_part_class, read_rule(text).parts))}"


def _verdict(command: NftCommand) -> str:
    """The verdict of a map's element; empty where it is deleted."""
    return read_element(elements_of(command.text)[0]).value


def _part_class(part: Match | Action) -> str:
    """A part of a rule without names and numbers. A comment is the same in all rules of a class."""
    if part.name == "comment":
        return " ".join(words_of(part))
    found: list[str] = []
    before = ""
    for word in (each for words in words_of(part) for each in ([words] if words[0] in '"{' else words.split())):
        if word.startswith('"') and part.name == "iifname":
            found.append("DEVICE")
        elif before == "l4proto" and word.isalnum():
            found.append("PROTOCOL")
        elif before == "mod":
            found.append("N")
        elif word.startswith("{") and before in _OF_ENDPOINTS:
            found.append("{ … }")
        elif word.startswith("{") and isinstance(part, Match):
            found.append("{ NETWORKS }")
        else:
            found.append(_without_names(word))
        before = word
    return " ".join(found)


def _without_names(text: str) -> str:
    return " ".join(_word_class(word) for word in text.split())


def _word_class(word: str) -> str:
    if word == "ip6":
        return "ip"
    if word.startswith("0x"):
        return "MARK"
    if word.startswith("@"):
        return f"@{without_hash(word[1:])}"
    if "." not in word and ":" not in word:
        return without_hash(word)
    try:
        network = ip_network(word)
    except ValueError:
        return "ENDPOINT" if word.rpartition(":")[2].isdigit() else without_hash(word)
    return "LOOPBACK" if network.is_loopback else "ADDRESS" if network.num_addresses == 1 else "NETWORK"


def _mutants(_rule_class: str, line: str) -> dict[str, Sequence[str]]:
    command = read_command(line)
    if command is None:
        return {}
    if command.kind == "rule":
        rule = read_rule(command.text)
        others = {change: replace(command, text=print_rule(other)) for change, other in _of_rule(rule)}
        return {ABSENT: (), **{change: (print_command(other),) for change, other in others.items()}}
    if command.kind == "set":
        words = command.text.split(" ")
        words[words.index(_TIME_OUT) + 1] = _DAY
        return {"a time-out of a day": (print_command(replace(command, text=" ".join(words))),)}
    if command.name not in _SETS and (verdict := _verdict(command)):
        verdicts = ("continue", *_VERDICTS_OF_ELEMENTS.get(verdict, ()))
        head = line.removesuffix(f" : {verdict} }}")
        return {ABSENT if each == "continue" else f": {each}": (f"{head} : {each} }}",) for each in verdicts}
    return {ABSENT: ()}


def _of_rule(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """The rule with one match less, or with another statement."""
    conditions, statements = tuple(rule.matches), tuple(rule.actions)
    for each in conditions:
        rest = tuple(other for other in conditions if other != each)
        if each.name == "meta l4proto":
            kinds = ", ".join(dict.fromkeys((each.value, "tcp", "udp")))
            wider = Match(each.name, (f"{{ {kinds} }}",))
            yield "meta l4proto of TCP and UDP", replace(rule, parts=(*rest, wider, *statements))
        else:
            yield f"without {_part_class(each)}", replace(rule, parts=(*rest, *statements))
    for changes in (_other_verdicts, _fewer_options, _other_marks, _fewer_choices, _other_ends):
        for at, statement in enumerate(statements):
            for change, other in changes(statement):
                yield change, replace(rule, parts=(*conditions, *statements[:at], other, *statements[at + 1 :]))


def _other_verdicts(statement: Action) -> Iterator[tuple[str, Action]]:
    for verdict in _VERDICTS.get(statement.name, ()):
        yield verdict, Action(verdict)


def _fewer_options(statement: Action) -> Iterator[tuple[str, Action]]:
    if _RANDOM in statement.words:
        rest = tuple(each for each in statement.words if each != _RANDOM)
        yield f"without {_RANDOM}", replace(statement, words=rest)


def _other_marks(statement: Action) -> Iterator[tuple[str, Action]]:
    if statement.name == "mark set":
        mark, operator, bits = statement.words
        yield f"{operator} of another bit", replace(statement, words=(mark, operator, f"{int(bits, 16) << 1:#08x}"))


def _fewer_choices(statement: Action) -> Iterator[tuple[str, Action]]:
    expression = " ".join(statement.words[:-1]).split()
    if "mod" in expression and (number := int(expression[expression.index("mod") + 1])) > 1:
        expression[expression.index("mod") + 1] = str(number - 1)
        before = [" ".join(expression)] if statement.name == "vmap" else expression
        yield "without the last choice", replace(statement, words=(*before, statement.words[-1]))


def _other_ends(statement: Action) -> Iterator[tuple[str, Action]]:
    if statement.name == "dnat":
        *before, to = statement.words
        for change, addresses, ports in (("address", 1, 0), ("port", 0, 1)):
            yield f"dnat to another {change}", replace(statement, words=(*before, _moved(to, addresses, ports)))


def _moved(to: str, addresses: int, ports: int) -> str:
    """Another end than this one, or than each of a map."""
    if to.startswith("{"):
        elements = ((each.key[0], each.value.split(" . ")) for each in map(read_element, elements_of(to)))
        moved = (
            f"{number} : {ip_address(host) + addresses} . {_port(port, ports)}" for number, (host, port) in elements
        )
        return f"{{ {', '.join(moved)} }}"
    host, _, port = to.rpartition(":")
    return endpoint(ip_address(host.strip("[]")) + addresses, _port(port, ports))


def _port(port: str, more: int) -> int:
    return (int(port) - 1 + more) % 65535 + 1


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
    return f"{without_hash(chain)} "


def loaded_rules(dump: str) -> Iterator[LoadedRule]:
    """The rules of a dump of one family, and the elements of its sets and maps but for the clients remembered."""
    for table in read_listing(dump):
        for each in table.objects:
            where = without_hash(each.name)
            for rule in each.rules if each.kind == "chain" else ():
                yield LoadedRule(TABLE, each.name, rule.text, where, _rule_class(each.name, rule.text))
            for text in () if each.kind == "chain" or each.name.startswith(AFFINITY) else each.elements:
                element = read_element(text)
                verdict = f" : {_without_names(element.value)}" if element.value else ""
                yield LoadedRule(
                    TABLE,
                    each.name,
                    print_element(element),
                    f"{each.kind} {where}",
                    f"element {where}{verdict}",
                    element.key,
                )


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
