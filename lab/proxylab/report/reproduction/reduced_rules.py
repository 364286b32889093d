"""The rules of each node, reduced to those that the packets of one probe can meet.

The remaining lines are verbatim output of iptables-save or ``nft list ruleset``, without counters.

A packet of the probe is addressed to the dialled address, to an address to which a rule translates it, or, on its way
back, to the sender. So a rule for another destination, protocol or Service port never matches, and the chains that only
such rules jump to are never reached. The two sets depend on each other: reachable rules yield translation targets, and
targets make rules reachable. So the module repeats both until nothing changes.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules import iptables, nftables
from proxylab.rules.effects import new_address
from proxylab.rules.iptables import SavedTable, read_tables
from proxylab.rules.nft_listing import elements_of, read_element
from proxylab.rules.packets import Answer, Packets, matches
from proxylab.rules.rule import Action, Match, Rule
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
            yield address, int(port) if (port := _port(action)).isdecimal() else 0
        elif "map" in action.words:  # from which dnat picks a random element
            for element in map(read_element, elements_of(action.words[-1])):
                host, _, port = element.value.partition(" . ")
                yield ip_address(host), int(port or 0)


def _port(action: Action) -> str:
    to = action.after("--to-destination") or action.after("to")
    return "" if to.count(":") > 1 and not to.startswith("[") else to.rpartition("]")[2].rpartition(":")[2]


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
    for table in re.split(r"(?m)^(?=table )", text):
        other = "ip6" if version == 4 else "ip"
        if not table.strip() or table.split()[1] == other:
            continue
        head, *blocks = re.split(r"(?m)^(?=\t(?:chain|set|map|counter|flowtable|ct helper) \S)", table)
        named = _without_empty_blocks({each.split()[1]: _trimmed(each, reach) for each in blocks})
        hooks = [name for name, block in named.items() if " hook " in block]
        kept = _reached(hooks, lambda name, named=named: _names(named[name]) & named.keys())  # type: ignore[misc]
        if kept:
            yield from filter(str.strip, head.splitlines())
            for name, block in named.items():
                if name in kept:
                    yield from (line for line in block.splitlines() if line.strip() and line != "}")
            yield "}"


def _without_empty_blocks(named: Mapping[str, str]) -> dict[str, str]:
    """The blocks of a table without rules that look up an empty set or map, or jump to a chain without rules."""
    blocks = dict(named)
    while True:
        text = "".join(blocks.values())
        empty = {
            name
            for name, block in blocks.items()
            if _is_empty(block) and not any(f"{verb} @{name} " in text for verb in ("add", "update"))
        }
        after = {
            name: "".join(line for line in block.splitlines(keepends=True) if not _needs(line, empty))
            if block.startswith("\tchain")
            else block
            for name, block in blocks.items()
        }
        if after == blocks:
            return {name: block for name, block in blocks.items() if not (" hook " in block and _is_empty(block))}
        blocks = after


def _needs(line: str, empty: Container[str]) -> bool:
    """Whether a line is a rule that does nothing, since what it looks up or jumps to is empty."""
    if not line.startswith("\t\t"):
        return False
    rule = nftables.read_rule(line.strip())
    looked_up = [value for each in rule.matches if not each.negated for value in each.values]
    looked_up += [each.words[-1] for each in rule.actions if each.name == "vmap" or "map" in each.words]
    jumps = (each.words[0] in empty for each in rule.actions if each.name == "jump")
    return any(each.startswith("@") and each[1:] in empty for each in looked_up) or any(jumps)


def _is_empty(block: str) -> bool:
    if block.startswith("\tchain"):
        rules = [line for line in block.splitlines()[1:] if line.strip(" \t}") and " hook " not in line]
        return not rules and "policy drop" not in block
    return block.startswith(("\tset", "\tmap")) and "elements = " not in block


def _names(block: str) -> set[str]:
    return set(re.split(r"[\s,{}@\";]+", block))


def _trimmed(block: str, reach: _Reach) -> str:
    """A chain, set or map without counters, and without elements that no packet matches."""
    block = re.sub(r"packets \d+ bytes \d+", "packets 0 bytes 0", block)
    block = block.replace(" counter packets 0 bytes 0", " counter")
    found = re.search(r"(?s)\t\telements = \{(.*?)\}\n", block)
    if not found:
        return block
    kept = [" ".join(each.split()) for each in found[1].split(",") if _is_met(each, reach)]
    elements = ",\n\t\t\t     ".join(kept)
    return block.replace(found[0], f"\t\telements = {{ {elements} }}\n" if kept else "")


def _is_met(element: str, reach: _Reach) -> bool:
    key = re.split(r" (?:comment|expires|timeout|counter|:) ?", f"{element.strip()} ")[0]
    for part in key.split(" . "):
        text = part.strip()
        if text.isdecimal():
            if int(text) not in reach.ports:
                return False
        elif text in _TRANSPORTS:
            if text != reach.protocol:
                return False
        elif not reach.meets(text):
            return False
    return True
