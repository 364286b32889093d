"""The rules of each node, reduced to those that the packets of one probe can meet.

The remaining lines are verbatim output of iptables-save or ``nft list ruleset``, without counters.

A packet of the probe is addressed to the dialled address, to an address to which a rule translates it, or, on its way
back, to the sender. So a rule for another destination, protocol or Service port never matches, and the chains that only
such rules jump to are never reached. The two sets depend on each other: reachable rules yield translation targets, and
targets make rules reachable. So the module repeats both until nothing changes.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules import iptables, nftables
from proxylab.rules.effects import new_address, new_end
from proxylab.rules.iptables import SavedTable, read_tables
from proxylab.rules.nft_listing import NftObject, elements_of, read_element, read_listing, without_counts
from proxylab.rules.packets import Answer, Packets, matches
from proxylab.rules.rule import Match, Rule
from proxylab.rules.texts import read_rule

_TRANSPORTS: Final = frozenset({"tcp", "udp", "sctp"})


class LoadedRules(Struct, frozen=True):
    """The rules of one node: the command that loads them, the lines, and the number of lines left out."""

    node: str
    loader: str
    lines: tuple[str, ...]
    left_out: int


class _Reach(Struct, frozen=True):
    """The possible destination addresses and ports of the probe's packets, and their protocol."""

    addresses: frozenset[IPAddress]
    ports: frozenset[int]
    protocol: str

    def packets(self, *, nat: bool) -> Packets:
        """What the probe's packets and their ICMP errors had. Table nat sees only the first packet of a flow."""
        sent = {Transport(self.protocol.upper()), Transport.ICMP}
        return Packets(sent, destinations=self.addresses, destination_ports=self.ports if nat else ())

    def meets(self, address: str) -> bool:
        """Whether this address or network contains a possible destination."""
        try:
            network = ip_network(address, strict=False)
        except ValueError:
            return True
        return any(each in network for each in self.addresses)


def rulesets(
    dumps: Mapping[str, str], resolved: ResolvedProbe, tool: str
) -> tuple[tuple[LoadedRules, ...], frozenset[IPAddress]]:
    """The rules of each node, and the addresses to which they may translate a packet of the probe.

    ``tool`` is the variant of iptables that reads them, ``legacy`` or ``nft``.
    """
    version, protocol = resolved.destination.version, str(resolved.protocol).lower()
    own = {resolved.destination, *resolved.sender.addresses}
    reach, targets = _Reach(frozenset(own), frozenset({resolved.port}), protocol), frozenset[IPAddress]()
    while True:
        found = tuple(each for node, text in dumps.items() for each in _of_node(node, text, tool, version, reach))
        ends = [end for each in found for line in each.lines for end in _ends(line)]
        now = frozenset(address for address, _ in ends)
        if now == targets:
            return found, targets
        ports = frozenset(port for _, port in ends if port)
        targets, reach = now, _Reach(reach.addresses | now, reach.ports | ports, protocol)


def _ends(line: str) -> Iterator[tuple[IPAddress, int]]:
    """The addresses to which the rule of a line translates, with their ports, 0 without one."""
    rule = read_rule(line.strip())
    if rule is None:
        return
    for action in (each for each in rule.actions if each.name.lower() == "dnat"):
        if (address := new_address(rule)) is not None:
            yield address, int(port) if (port := new_end(rule)[1]).isdecimal() else 0
        elif "map" in action.words:  # from which dnat picks a random element
            for element in map(read_element, elements_of(action.words[-1])):
                host, _, port = element.value.partition(" . ")
                yield ip_address(host), int(port or 0)


def _of_node(node: str, text: str, tool: str, version: int, reach: _Reach) -> Iterator[LoadedRules]:
    if text.lstrip().startswith("table "):
        loader, size, lines = "nft -f -", len(text.splitlines()), tuple(_nft(text, version, reach))
    else:
        tables = [each for each in read_tables(text) if each.printed_by.startswith("ip6") is (version == 6)]
        loader = f"ip{'' if version == 4 else '6'}tables-{tool}-restore"
        size = sum(len(table.chains) + len(table.rules) + len(("*", "COMMIT")) for table in tables)
        lines = tuple(line for table in tables for line in _iptables(table, reach))
    if lines:
        yield LoadedRules(node, loader, lines, size - len(lines))


def _iptables(table: SavedTable, reach: _Reach) -> Iterator[str]:
    chains = table.chains
    read = [rule for each in table.rules if (rule := iptables.read_rule(each.text)) is not None]
    met = [rule for rule in read if matches(rule, reach.packets(nat=table.name == "nat")) is not Answer.NO]
    rules = _without_empty_chains(met, {each.name for each in chains.values() if not each.is_built_in})
    built_in = [each.name for each in chains.values() if each.is_built_in]
    kept = _reached(built_in, lambda chain: _jumps(rules, chain))
    rules = [rule for rule in rules if rule.chain in kept]
    if rules:
        yield f"*{table.name}"
        idle = {name for name in built_in if chains[name].policy == "ACCEPT" and not any(_jumps(rules, name))}
        yield from (f":{each.name} {each.policy} [0:0]" for each in chains.values() if each.name in kept - idle)
        yield from (iptables.print_rule(_without_objects(rule)) for rule in rules)
        yield "COMMIT"


def _without_objects(rule: Rule) -> Rule:
    """The rule without what counts into an nfacct(8) object, which does not exist in the script."""
    counting = (Match("-m", ("nfacct",)), *(each for each in rule.matches if each.name == "--nfacct-name"))
    return replace(rule, parts=tuple(each for each in rule.parts if each not in counting))


def _without_empty_chains(rules: list[Rule], chains: set[str]) -> list[Rule]:
    """The rules without jumps to chains that have become empty."""
    while True:
        empty = chains - {rule.chain for rule in rules}
        kept = [rule for rule in rules if rule.target not in empty]
        if kept == rules:
            return rules
        rules = kept


def _jumps(rules: Iterable[Rule], chain: str) -> Iterator[str]:
    return (rule.target for rule in rules if rule.chain == chain)


def _reached(first: Iterable[str], following: Callable[[str], Iterable[str]]) -> frozenset[str]:
    kept, waiting = set[str](), list(first)
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept.add(name)
            waiting += following(name)
    return frozenset(kept)


def _nft(text: str, version: int, reach: _Reach) -> Iterator[str]:
    for table in read_listing(text):
        if table.name.partition(" ")[0] == ("ip6" if version == 4 else "ip"):
            continue
        objects = _without_empty_objects({each.name: _trimmed(each, reach) for each in table.objects})
        named = {name: each.words & objects.keys() for name, each in objects.items()}
        kept = _reached([name for name, each in objects.items() if each.base is not None], named.__getitem__)
        if kept:
            yield from table.head
            for each in (each for name, each in objects.items() if name in kept):
                yield from (each.opening, *each.lines, "\t}")
            yield "}"


def _without_empty_objects(named: Mapping[str, NftObject]) -> dict[str, NftObject]:
    """The objects of a table without rules that look up an empty set or map, or jump to a chain without rules."""
    objects = dict(named)
    while True:
        filled = {name for each in objects.values() for rule in _rules(each) for name in _filled(rule)}
        empty = {name for name, each in objects.items() if _is_empty(each) and name not in filled}
        after = {name: _without_idle_rules(each, empty) for name, each in objects.items()}
        if after == objects:
            return {name: each for name, each in objects.items() if each.base is None or not _is_empty(each)}
        objects = after


def _rules(chain: NftObject) -> list[Rule]:
    return [nftables.read_rule(each.text) for each in chain.rules] if chain.kind == "chain" else []


def _filled(rule: Rule) -> Iterator[str]:
    """The sets to which a rule adds what it meets."""
    return (each.words[0].removeprefix("@") for each in rule.actions if each.name in ("add", "update"))


def _without_idle_rules(chain: NftObject, empty: Container[str]) -> NftObject:
    """The object without rules that do nothing, since what they look up or jump to is empty."""
    rules = _rules(chain)
    kept = [rule for rule in rules if not _needs(rule, empty)]
    return chain if kept == rules else chain.with_rules(map(nftables.print_rule, kept))


def _needs(rule: Rule, empty: Container[str]) -> bool:
    looked_up = [value for each in rule.matches if not each.negated for value in each.values]
    looked_up += [each.words[-1] for each in rule.actions if each.name == "vmap" or "map" in each.words]
    jumps = (each.words[0] in empty for each in rule.actions if each.name == "jump")
    return any(each.startswith("@") and each[1:] in empty for each in looked_up) or any(jumps)


def _is_empty(each: NftObject) -> bool:
    if each.kind == "chain":
        return not each.rules and (each.base is None or each.base.policy != "drop")
    return each.kind in ("set", "map") and not each.elements


def _trimmed(each: NftObject, reach: _Reach) -> NftObject:
    """A chain, set or map without counters, and without elements that no packet matches."""
    uncounted = replace(each, lines=tuple(map(without_counts, each.lines)))
    if each.kind not in ("set", "map"):
        return uncounted
    return uncounted.with_elements([element for element in uncounted.elements if _is_met(element, reach)])


def _is_met(element: str, reach: _Reach) -> bool:
    for part in read_element(element).key:
        if part.isdecimal():
            if int(part) not in reach.ports:
                return False
        elif part in _TRANSPORTS:
            if part != reach.protocol:
                return False
        elif not reach.meets(part):
            return False
    return True
