"""The texts of mode nftables: what is loaded, and what ``nft list table`` prints."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.embedded.nftables.loader import Present
from proxylab.engines.embedded.nftables.names import AFFINITY, is_of_service
from proxylab.engines.embedded.nftables.render import render
from proxylab.engines.embedded.nftables.transaction import write_table
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.programmed import Entry, Hook, Programmed, Way
from proxylab.rules.nft_listing import (
    NftObject,
    NftTable,
    elements_of,
    print_element,
    print_listing,
    read_element,
    read_listing,
)
from proxylab.rules.nftables import led_to, read_rule
from proxylab.rules.rule import Action, Rule

_MAPS: Final = ("service-ips", "service-nodeports", "no-endpoint-services", "no-endpoint-nodeports")
_REMEMBERED: Final = "@affinity-"
_ENDPOINT: Final = "endpoint-"
"""Begins the names of endpoint chains, to which others jump by choice or by session affinity."""
_LOCAL: Final = "local-"
"""Begins the names of chains that choose among the endpoints of policy Local."""
_HOOKS: Final = {
    Hook.IN: ("nat-prerouting", "services"),
    Hook.OUT: ("nat-output", "services"),
    Hook.LEAVING: ("nat-postrouting", "masquerading"),
}
_FAMILIES: Final = {Family.IPV4: "ip", Family.IPV6: "ip6"}


def settings(configuration: ProxyConfiguration, pod_networks: tuple[IPNetwork, ...]) -> ProxySettings:
    """The settings of a proxy in this mode, which by default serves node ports on the node's primary address only."""
    return replace(
        ProxySettings.of(configuration, pod_networks),
        masquerade_all=configuration.nftables.masquerade_all,
        masquerade_bit=configuration.nftables.masquerade_bit,
        node_port_primary=configuration.node_port_primary or not configuration.node_port_addresses,
        localhost_node_ports=False,
    )


def load(
    cluster: ClusterView, node: NodeFacts, settings: ProxySettings, family: Family, version: tuple[int, ...]
) -> str:
    """What the embedded engine would load into an empty node, for ``nft -f``. It writes the table of one version."""
    del version
    return write_table(render(cluster, node, settings, family), Present(), rehook=False).text


def by_family(dump: str, families: Sequence[Family]) -> dict[Family, str]:
    """The part of each family in a dump; empty for a family without rules."""
    tables = {each.name.partition(" ")[0]: print_listing([each]) for each in reversed(read_listing(dump))}
    return {family: tables.get(_FAMILIES[family], "") for family in families}


def differences(ours: str, theirs: str) -> list[str]:
    """A line for each rule, element or head of an object that only one of two dumps has; none if they mean the same.

    Objects and elements have no order. Emptied chains of service ports mean nothing: proxies delete them later.
    """
    found: list[str] = []
    for family in Family:
        mine, other = (_meaning(by_family(dump, [family])[family]) for dump in (ours, theirs))
        for name in sorted({*mine, *other}):
            left, right = mine.get(name, []), other.get(name, [])
            if left != right:
                found += [f"- {family} {name}: {line}" for line in left if line not in right]
                found += [f"+ {family} {name}: {line}" for line in right if line not in left]
                if sorted(left) == sorted(right):
                    found.append(f"+ {family} {name}: the same rules in another order")
    return found


def holds(dump: str, present: bool) -> bool:
    """Whether there is a table, which is written as a whole; or none."""
    return ("chain " in dump) is present


def without(dump: str, service: str, addresses: Collection[str]) -> str:
    """A dump without the chains of the Service of that name, and without elements of its name or addresses."""

    def left(element: str) -> bool:
        return service not in element and not set(addresses).intersection(element.split())

    tables: list[NftTable] = []
    for table in read_listing(dump):
        others = [each for each in table.objects if each.kind != "chain" or service not in each.name]
        objects = tuple(
            each if each.kind == "chain" else each.with_elements([*filter(left, each.elements)]) for each in others
        )
        tables.append(replace(table, objects=objects))
    return print_listing(tables)


def read(text: str) -> Programmed:
    """The rules of one family."""
    table = next(iter(read_listing(text)), NftTable("", ()))
    maps = table.of_kind("map")
    chains = {name: [read_rule(each.text) for each in chain.rules] for name, chain in table.of_kind("chain").items()}
    looked_up = {rule.looked_up for rule in chains.get("services", ())}
    return Programmed(
        hooked=frozenset(
            hook
            for hook, (chain, wanted) in _HOOKS.items()
            if any(wanted in led_to(rule) for rule in chains.get(chain, ()))
        ),
        reaches_addresses="service-ips" in looked_up,
        reaches_node_ports="service-nodeports" in looked_up,
        entries=tuple(entry for name in _MAPS if name in maps for entry in _entries(maps[name])),
        leads={name: tuple(_leads(rules)) for name, rules in chains.items()},
        ways={name: tuple(_ways(chains, name)) for name in chains},
        local=frozenset(name for name in chains if name.startswith(_LOCAL)),
        in_turn=False,
        masquerades=_masquerades(chains.get("masquerading", ())),
    )


def _entries(service_map: NftObject) -> Iterator[Entry]:
    for key, verdict in map(read_element, service_map.elements):
        *address, protocol, port = key
        refused = {"drop": "DROP", "goto reject-chain": "REJECT"}.get(verdict, "")
        yield Entry(
            address=ip_address(address[0]) if address else None,
            protocol=Protocol(protocol.upper()),
            port=int(port),
            leads_to="" if refused else verdict.removeprefix("goto ").removeprefix("jump "),
            refused=refused,
        )


def _leads(rules: Sequence[Rule]) -> Iterator[str]:
    """The chains to which a chain jumps, except by load balancing or session affinity."""
    for rule in rules:
        remembered = any(each.value.startswith(_REMEMBERED) for each in rule.matches)
        if not remembered and _choice(rule) is None:
            yield from led_to(rule)


def _choice(rule: Rule) -> Action | None:
    """What a rule does by load balancing: it looks a random number up in a map of verdicts or destinations."""
    return next((each for each in rule.actions if "numgen" in " ".join(each.words).split()), None)


def _ways(chains: Mapping[str, Sequence[Rule]], name: str) -> Iterator[Way]:
    """The choices of a chain: each jumps to an endpoint's chain or, since 1.35, is the new destination.

    Since 1.37 a Service with one endpoint has no choice: its own chain translates.
    """
    chosen = next(filter(None, map(_choice, chains[name])), None)
    if chosen is None:
        if not name.startswith(_ENDPOINT) and (only := _translation(chains[name])) is not None:
            yield Way(by=name, chance=1, to=only)
        return
    words = " ".join(chosen.words).split()
    chance = 1 / int(words[words.index("mod") + 1])  # a number without an element leads nowhere
    for each in map(read_element, elements_of(chosen.words[-1])):
        if chosen.name == "vmap":
            chain = each.value.removeprefix("goto ")
            yield Way(by=chain, chance=chance, to=_translation(chains.get(chain, ())))
        else:
            address, _, port = each.value.partition(" . ")
            yield Way(by=name, chance=chance, to=(ip_address(address), int(port)))


def _translation(rules: Sequence[Rule]) -> tuple[IPAddress, int] | None:
    to = next((each.after("to") for rule in rules for each in rule.actions if each.name == "dnat"), "")
    host, _, port = to.rpartition(":")
    return (ip_address(host.strip("[]")), int(port)) if port.isdigit() else None


def _masquerades(rules: Sequence[Rule]) -> bool:
    """Whether rules masquerade what has a mark, or return what has none and masquerade the rest."""
    of_mark = False
    for rule in rules:
        tests_mark = any(each.name.startswith("meta mark") for each in rule.matches)
        if rule.target == "masquerade" and (of_mark or tests_mark):
            return True
        of_mark |= tests_mark and rule.target == "return"
    return False


def _meaning(table: str) -> dict[str, list[str]]:
    """The lines of each object: of a chain its rules in their order, of a set or map its head and its sorted elements.

    A set that remembers clients means the same whatever clients it has. Comments of elements mean nothing: kube-proxy
    keeps that of an earlier Service while the key and the verdict stay.
    """
    meaning: dict[str, list[str]] = {}
    for each in read_listing(table)[0].objects if table else ():
        lines = [line.strip() for line in each.properties]
        if each.kind == "chain":
            lines += [rule.text for rule in each.rules]
        elif not each.name.startswith(AFFINITY):
            lines += sorted(print_element(read_element(element)) for element in each.elements)
        if lines or not is_of_service(each.name):
            meaning[f"{each.kind} {each.name}"] = lines
    return meaning
