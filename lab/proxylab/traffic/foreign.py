"""A node's rules that its engine did not write, and what they counted during a probe.

``ForeignRules`` decides when a node's tables are listed and parses the listing; it leaves out the tables that a meter
counts. ``ForeignInSteps`` adds up what steps of a lab read. What a rule means is up to ``verdict``.

Most nodes have no foreign rules; two netlink requests show it. Where there are some, the tools that wrote them list
them before a probe, and again before its first sentinel packet or at its end. What tc and XDP have put on the node's
devices is among them, though its meaning is not read.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from itertools import starmap
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.evidence.evidence import ForeignRule, RuleCount
from proxylab.kernel.netfilter.foreign_tables import TableNames
from proxylab.kernel.netlink.traffic_control import Filter, Queue, TrafficControl, XdpProgram
from proxylab.plan.masquerade import is_masquerade
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules.iptables import SavedTable, read_tables
from proxylab.rules.nft_listing import read_listing
from proxylab.rules.nftables import print_rule, read_rule
from proxylab.rules.rule import Action
from proxylab.timing import together
from proxylab.verdict.counted_rules import is_engines_chain

Listing = Callable[[], Awaitable[str | None]]
"""The node's whole nftables ruleset from ``nft --handle --numeric-priority list ruleset``; ``None`` without nft."""

Saved = Callable[[Family, str], Awaitable[str]]
"""One legacy table of the node, as iptables-save prints it with counters."""

_OWN: Final = "proxylab-"
_NAT: Final = "nat"
_NFT_FAMILY: Final = {Family.IPV4: "ip", Family.IPV6: "ip6"}
_OTHER_FAMILY: Final = {Family.IPV4: "ip6", Family.IPV6: "ip"}
_ODD: Final = re.compile(r"KUBE-(SVC|SVL|SEP|EXT|FW|XLB)-(?![A-Z2-7]{16}$)")
"""The name of a chain of a Service port without a hash."""
_PRIORITIES: Final = {"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}
_SOURCE_NAT: Final = 100
_DROPS: Final = "policy drop"


class _RuleKey(NamedTuple):
    """What identifies a rule of a lab.

    Attributes:
        in_engines_table: whether it stands in a table of the engine's.
        node: that has it.
        family: of the packets that it is read for.
        key: what identifies it there.
    """

    in_engines_table: bool
    node: str
    family: Family
    key: object


class ForeignRules:
    """The foreign rules of one node.

    Args:
        counted: tells the tables of nftables, with their families, that a meter counts or the lab has made, and those
            of legacy iptables.
        save: lists the tables of iptables in which the engine has chains.
    """

    def __init__(
        self,
        node: str,
        names: TableNames,
        nft: Listing,
        legacy: Saved,
        devices: TrafficControl,
        counted: Callable[[], tuple[Collection[str], Collection[str]]],
        save: Callable[[Family], Awaitable[str]],
    ) -> None:
        self._node = node
        self._names = names
        self._nft = nft
        self._legacy = legacy
        self._devices = devices
        self._counted = counted
        self._save = save
        self._family = Family.IPV4
        self._before: dict[object, ForeignRule] = {}
        self._after: dict[object, ForeignRule] | None = None

    async def begin(self, family: Family) -> None:
        """Remember the counters of the rules for packets of that family."""
        self._family = family
        self._after = None
        self._before = await self.read(family)

    @property
    def found_none(self) -> bool:
        """Whether there were no such rules at the beginning; then there is nothing to read again."""
        return not self._before

    async def read_again(self) -> None:
        """Read the counters now: what comes later is not the probe's. A second call does nothing."""
        if self._after is None:
            self._after = {} if self.found_none else await self.read(self._family)

    async def end(self) -> tuple[ForeignRule, ...]:
        """All foreign rules of the node, each with the increase of its counter."""
        await self.read_again()
        return tuple(
            replace(rule, packets=rule.packets - min(rule.packets, self._before[key].packets or 0))
            if rule.packets is not None and key in self._before
            else rule
            for key, rule in (self._after or {}).items()
        )

    def close(self) -> None:
        """Close the netlink sockets."""
        self._names.close()
        self._devices.close()

    async def read(self, family: Family) -> dict[object, ForeignRule]:
        """The rules for packets of that family, each with all that it ever counted, by a key that identifies it."""
        found: dict[object, ForeignRule] = {}
        tables = [
            table for table in self._names.nft() if self._is_foreign(table, family) and self._names.decides(table)
        ]
        if tables:
            listing = await self._nft()
            if listing is None:
                found.update({table: ForeignRule(self._node, table, "", "", 0, "", None) for table in tables})
            else:
                rules = nft_rules(self._node, listing)
                found.update({key: rule for key, rule in rules if rule.table in tables})
                for table in dict.fromkeys(rule.table for rule in found.values() if rule.text == _DROPS):
                    for chain, packets in self._names.dropped_by_policies(table).items():
                        if (rule := found.get((table, chain))) is not None:
                            found[table, chain] = replace(rule, packets=packets)
        for table in self._names.legacy(family, self._counted()[1]):
            for saved in read_tables(await self._legacy(family, table)):
                found.update(legacy_rules(self._node, saved))
        found = {key: rule for key, rule in found.items() if not is_masquerade(f"{rule.chain} {rule.text}")}
        return found | self._read_devices()

    async def read_shared(self, family: Family, *, always: bool) -> dict[object, ForeignRule]:
        """All rules of those of the engine's own tables of iptables in which others have rules; ``always`` of all."""
        nft, legacy = self._counted()
        prefix = f"{_NFT_FAMILY[family]} "
        rules: dict[str, Iterable[tuple[str, str]]] = {}
        for table in (each.removeprefix(prefix) for each in nft):
            if table in _PRIORITIES:
                rules[table] = self._names.nft_rules(family, table)
        rules |= {table: self._names.legacy_rules(family, table) for table in legacy}
        tables = [table for table, each in rules.items() if always or not all(starmap(_is_own, each))]
        saved = await self._save(family) if tables else ""
        sections = {section.name: section for section in read_tables(saved) if section.name in tables}
        return {key: rule for section in sections.values() for key, rule in legacy_rules(self._node, section)}

    def _read_devices(self) -> dict[object, ForeignRule]:
        """Filters, queues and programs as rules: a queue by what it drops, of which it has a counter."""
        found: dict[object, ForeignRule] = {}
        for each in self._devices.read():
            match each:
                case Filter(device, way, preference, kind):
                    found[each] = ForeignRule(self._node, "tc", device, way, preference, f"filter {kind}", None)
                case XdpProgram(device):
                    found[each] = ForeignRule(self._node, "XDP", device, "ingress", 0, "program", None)
                case Queue(device, handle, kind, waiting, dropped):
                    queue = ForeignRule(self._node, "tc", device, "egress", 0, f"queue {kind}", dropped, waiting)
                    found[device, handle, kind] = queue
        return found

    def _is_foreign(self, table: str, packets: Family) -> bool:
        family, _, name = table.partition(" ")
        other = family in (_OTHER_FAMILY[packets], "arp")
        return not (other or name.startswith(_OWN) or table in self._counted()[0])


class ForeignInSteps:
    """The foreign rules that may have led packets of streams, which run in the steps of a lab.

    A rule of NAT counts the first packet of a flow, and a flow lives through many steps. So this adds up all steps so
    far, and keeps a rule that is gone; it marks those that met nothing in the latest one, since a rule that drops acts
    at once. What probes send while the streams rest does not count. Nothing shows which rule made an entry that a
    stream goes on with, so the doubt about who led it stays until the lab ends.

    Meters cannot read while an engine reloads its rules. So the rules of the engine's own tables are listed at a step's
    begin and end, where others have rules in them, too.
    """

    def __init__(self, nodes: Mapping[str, ForeignRules]) -> None:
        self._nodes = nodes
        self._watched: dict[tuple[str, Family], ForeignRules] = {}
        self._before: dict[_RuleKey, ForeignRule] | None = None
        self._found: dict[_RuleKey, ForeignRule] = {}
        self._latest: set[_RuleKey] = set()

    async def begin(self, streams: Iterable[ResolvedProbe] = (), *, changing: bool = False) -> None:
        """Remember the counters on the nodes of the streams, which are about to send; a second call does nothing.

        Where engines are ``changing``, the rules of one may remain beside those of its successor in another mode. What
        they counted before is then remembered, too.
        """
        for each in streams:
            for node in each.nodes if each.service_port else ():
                if node in self._nodes:
                    self._watched[node, Family.of(each.destination)] = self._nodes[node]
        if self._before is None:
            self._before = await self._read(always=changing)

    async def end(self) -> None:
        """Add what has been counted since, now that all streams are at rest; a second call does nothing."""
        began, self._before = self._before, None
        if began is None:
            return
        for key, rule in (await self._read(always=False)).items():
            if rule.packets is None:
                self._found[key] = rule
                self._latest.add(key)
                continue
            elsewhere = key._replace(in_engines_table=not key.in_engines_table)
            before = _packets(began.get(key, began.get(elsewhere)))
            gained = rule.packets - before if rule.packets >= before else rule.packets
            if gained:
                self._found[key] = replace(rule, packets=gained + _packets(self._found.get(key)))
                self._latest.add(key)

    def found(self) -> tuple[tuple[ForeignRule, ...], tuple[RuleCount, ...]]:
        """The foreign rules that counted in this step or an earlier one or have no counter, and what rules counted.

        The latter are all rules of tables that the engine shares with others, but those of the past in table nat alone.
        The step ends with this.
        """
        latest, self._latest = self._latest, set()
        foreign = dict.fromkeys(
            replace(rule, past=key not in latest) for key, rule in self._found.items() if not key.in_engines_table
        )
        counts = (
            rule for key, rule in self._found.items() if key.in_engines_table and (rule.table == _NAT or key in latest)
        )
        return tuple(foreign), tuple(
            RuleCount(rule.node, rule.table, rule.chain, rule.text, _packets(rule)) for rule in counts
        )

    async def _read(self, *, always: bool) -> dict[_RuleKey, ForeignRule]:
        found: dict[_RuleKey, ForeignRule] = {}
        watched = list(self._watched.items())
        for shared in (False, True):
            read = await together(
                rules.read_shared(family, always=always) if shared else rules.read(family)
                for (_, family), rules in watched
            )
            for ((node, family), _), listed in zip(watched, read, strict=True):
                found.update({_RuleKey(shared, node, family, key): rule for key, rule in listed.items()})
        return found


def _is_own(chain: str, to: str) -> bool:
    """Whether a rule may be the engine's by the form of names; ``verdict`` knows the names that Service ports give."""
    own = any(is_engines_chain(each) and not _ODD.search(each) for each in (chain, to))
    return own or is_masquerade(chain + to)


def nft_rules(node: str, listing: str) -> Iterator[tuple[object, ForeignRule]]:
    """The rules of all tables, and the policies that drop, each with a key that identifies it."""
    for table in read_listing(listing):
        chains = table.of_kind("chain").values()
        for chain in chains:
            where = (chain.base.hook, chain.base.priority or 0) if chain.base is not None else ("", 0)
            for listed in chain.rules:
                text, packets = _counted(listed.text)
                rule = ForeignRule(node, table.name, chain.name, *where, text, packets)
                yield (table.name, chain.name, listed.handle), rule
        for chain in chains:
            if (base := chain.base) is not None and base.policy == "drop":
                where = (base.hook, base.priority or 0)
                yield (table.name, chain.name), ForeignRule(node, table.name, chain.name, *where, _DROPS, None)


def _counted(text: str) -> tuple[str, int | None]:
    """The text of a rule without what it counted, and the packets of its first counter; ``None`` without one."""
    rule = read_rule(text)
    counters = [each for each in rule.actions if each.name == "counter" and each.after("packets")]
    if not counters:
        return text, None
    bare = tuple(Action("counter") if each in counters else each for each in rule.parts)
    return print_rule(replace(rule, parts=bare)), int(counters[0].after("packets"))


def legacy_rules(node: str, table: SavedTable) -> Iterator[tuple[object, ForeignRule]]:
    """The rules of a table, and the policies that drop, each with a key that identifies it."""
    dropping = (each for each in table.chains.values() if each.policy == "DROP" and each.packets is not None)
    lines = [(each.name, f"-P {each.name} DROP", each.packets) for each in dropping]
    lines += [(each.chain, each.text, each.packets) for each in table.rules if each.packets is not None]
    seen: dict[str, int] = {}
    for chain, text, packets in lines:
        seen[text] = seen.get(text, 0) + 1
        hook = chain.lower() if chain in _HOOKS else ""
        priority = _SOURCE_NAT if table.name == "nat" and chain in ("POSTROUTING", "INPUT") else _PRIORITIES[table.name]
        rule = ForeignRule(node, table.name, chain, hook, priority if hook else 0, text, packets)
        yield (table.name, text, seen[text]), rule


_HOOKS: Final = frozenset({"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"})


def _packets(rule: ForeignRule | None) -> int:
    return 0 if rule is None else rule.packets or 0
