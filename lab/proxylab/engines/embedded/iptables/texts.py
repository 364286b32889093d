"""The texts of mode iptables: what is loaded, and what iptables-save prints."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from itertools import zip_longest
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.engines.embedded.iptables import meaning
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.legacy import generation_of
from proxylab.engines.embedded.iptables.meaning import Chains, RuleMeaning, read_rules
from proxylab.engines.embedded.iptables.render import CURRENT, render
from proxylab.engines.embedded.iptables.restore import restore
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.programmed import Entry, Hook, Programmed, Way
from proxylab.rules.iptables import read_rule, read_tables

TCP_BE_LIBERAL: Final = "net.netfilter.nf_conntrack_tcp_be_liberal"
"""Where it is set when the proxy starts, no packet is INVALID for being out of window."""

_HOOKS: Final = {Hook.IN: "PREROUTING", Hook.OUT: "OUTPUT", Hook.LEAVING: "POSTROUTING"}
_SERVICES: Final = "KUBE-SERVICES"
_NODE_PORTS: Final = "KUBE-NODEPORTS"
_POSTROUTING: Final = "KUBE-POSTROUTING"
_MARK_MASQ: Final = "KUBE-MARK-MASQ"
_ENDPOINT: Final = "KUBE-SEP-"
_LOCAL: Final = ("KUBE-SVL-", "KUBE-XLB-")
"""Begin the names of chains that choose among the endpoints of policy Local. Releases up to 1.23 had KUBE-XLB-."""
_REFUSING: Final = ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES")
_ENDINGS: Final = ("REJECT", "DROP")
_KUBE: Final = "KUBE-"
_CERTAIN: Final = 1 << 31
"""xt_statistic counts probability in multiples of 2^-31, and ``meaning`` reads it so."""

_CHAIN_BY_TABLE: Final = {"filter": "KUBE-FORWARD", "nat": "KUBE-SERVICES"}
"""By table, a chain in which a proxy always has a rule.

Jumps into its chains prove nothing: the proxy makes those first, one by one, and loads the chains afterwards.
"""

_OF_SERVICES: Final = ("KUBE-SVC-", "KUBE-SEP-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SVL-")
_FIRST_TABLE: Final = "\n*mangle\n"
"""The lab dumps table mangle first in each family."""


def assume(settings: ProxySettings, sysctls: Mapping[str, str], version: tuple[int, ...]) -> tuple[ProxySettings, str]:
    """The settings on a node whose kernel has nfacct, and a line that says so."""
    liberal = settings.conntrack_tcp_be_liberal or sysctls.get(TCP_BE_LIBERAL, "0") != "0"
    counts = generation_of(version) is CURRENT
    assumed = "the kernel has nfacct, which some rules count into" if counts else ""
    return replace(settings, packet_counters=counts, conntrack_tcp_be_liberal=liberal), assumed


def load(
    cluster: ClusterView, node: NodeFacts, settings: ProxySettings, family: Family, version: tuple[int, ...]
) -> str:
    """What the embedded engine, behaving like ``version``, would load into an empty node, for iptables-restore(8)."""
    return restore(render(cluster, node, settings, family, generation_of(version)), KernelState()).text


def by_family(dump: str, families: Sequence[Family]) -> dict[Family, str]:
    """The part of each family in a dump; empty for a family without rules."""
    return dict(zip(families, _parts(dump), strict=False))


def differences(ours: str, theirs: str) -> list[str]:
    """A line for each rule that only one of two dumps has; none if they mean the same."""
    found = []
    for family, (mine, other) in enumerate(zip_longest(_parts(ours), _parts(theirs), fillvalue="")):
        head = f"family {family + 1}: " if family else ""
        lines = meaning.differences(_kube(read_rules(mine)), _kube(read_rules(other)))
        found += [f"{head}{line}" for line in lines]
    return found


def holds(dump: str, present: bool) -> bool:
    """Whether every table that the proxy always uses has its rules in each family, or none has."""
    tables = [
        bool(table.rules_in([_CHAIN_BY_TABLE[table.name]]))
        for table in read_tables(dump)
        if table.name in _CHAIN_BY_TABLE
    ]
    return all(tables) if present else not any(tables)


def without(dump: str, service: str, _addresses: Collection[str]) -> str:
    """A dump without the rules of the Service of that name."""
    own: set[str] = set()
    for rule in (read_rule(each.text) for table in read_tables(dump) for each in table.rules if service in each.text):
        own |= set() if rule is None else {rule.chain, rule.target, rule.value("--name")}
    names = (service, *(name for name in own if name.startswith(_OF_SERVICES)))
    return "".join(line for line in dump.splitlines(keepends=True) if not any(name in line for name in names))


def read(text: str) -> Programmed:
    """The rules of one family."""
    chains = read_rules(text)

    def nat(chain: str) -> Sequence[RuleMeaning]:
        return chains.get(("nat", chain), ())

    leading = {hook: {_target(rule) for rule in nat(chain)} for hook, chain in _HOOKS.items()}
    hooked = {hook for hook in (Hook.IN, Hook.OUT) if _SERVICES in leading[hook]}
    if _POSTROUTING in leading[Hook.LEAVING]:
        hooked.add(Hook.LEAVING)
    return Programmed(
        hooked=frozenset(hooked),
        reaches_addresses=True,
        reaches_node_ports=any(_target(rule) == _NODE_PORTS for rule in nat(_SERVICES)),
        entries=tuple(_entries(chains)),
        leads={
            chain: tuple(to for rule in rules if (to := _target(rule)).startswith("KUBE-") and to != _MARK_MASQ)
            for (table, chain), rules in chains.items()
            if table == "nat"
        },
        ways={chain: tuple(_ways(chains, rules)) for (table, chain), rules in chains.items() if table == "nat"},
        local=frozenset(chain for _table, chain in chains if chain.startswith(_LOCAL)),
        in_turn=True,
        masquerades=any(_target(rule) == "MASQUERADE" for rule in nat(_POSTROUTING))
        and any(_target(rule) == "MARK" for rule in nat(_MARK_MASQ)),
    )


def _entries(chains: Chains) -> Iterator[Entry]:
    for rule in chains.get(("nat", _SERVICES), ()):
        address, target = _address(rule), _target(rule)
        if address is not None and target.startswith("KUBE-") and target != _MARK_MASQ:
            yield from _entry(rule, address, leads_to=target)
    for rule in chains.get(("nat", _NODE_PORTS), ()):
        target = _target(rule)
        if not _of_loopback(rule) and target.startswith("KUBE-") and target != _MARK_MASQ:
            yield from _entry(rule, None, leads_to=target)
    for chain in _REFUSING:
        for rule in chains.get(("filter", chain), ()):
            if _target(rule) in _ENDINGS:
                yield from _entry(rule, _address(rule), refused=_target(rule))


def _entry(rule: RuleMeaning, address: IPAddress | None, *, leads_to: str = "", refused: str = "") -> Iterator[Entry]:
    protocol, port = _value(rule, "--protocol").upper(), _value(rule, "--dport")
    if protocol in Protocol.__members__ and port.isdigit():
        yield Entry(address=address, protocol=Protocol(protocol), port=int(port), leads_to=leads_to, refused=refused)


def _ways(chains: Chains, rules: Sequence[RuleMeaning]) -> Iterator[Way]:
    """The choices of a chain; a rule of session affinity is none."""
    for rule in rules:
        target = _target(rule)
        if not target.startswith(_ENDPOINT) or any(option[0] == "--rcheck" for option in rule):
            continue
        chance = _value(rule, "--probability")
        translations = [each for each in chains.get(("nat", target), ()) if _target(each) == "DNAT"]
        to = _translation(translations[0]) if translations else None
        yield Way(by=target, chance=int(chance) / _CERTAIN if chance else 1.0, to=to)


def _translation(rule: RuleMeaning) -> tuple[IPAddress, int] | None:
    host, _, port = _value(rule, "--to-destination").rpartition(":")
    try:
        return ip_address(host.strip("[]")), int(port)
    except ValueError:
        return None


def _target(rule: RuleMeaning) -> str:
    return _value(rule, "--jump") or _value(rule, "--goto")


def _address(rule: RuleMeaning) -> IPAddress | None:
    """The single address that a rule matches."""
    text = _value(rule, "--destination")
    network = ip_network(text) if text else None
    return network[0] if network is not None and network.num_addresses == 1 else None


def _of_loopback(rule: RuleMeaning) -> bool:
    text = _value(rule, "--destination")
    return bool(text) and ip_network(text).is_loopback


def _value(rule: RuleMeaning, wanted: str) -> str:
    """The first value of an option without a negation; empty if there is none."""
    return next((option[1] for option in rule if option[0] == wanted and len(option) > 1), "")


def _parts(dump: str) -> list[str]:
    parts = f"\n{dump}".split(_FIRST_TABLE)[1:]
    return [f"{_FIRST_TABLE}{part}"[1:] + "\n" * (number < len(parts)) for number, part in enumerate(parts, 1)]


def _kube(chains: Chains) -> Chains:
    """kube-proxy's chains, and the rules elsewhere that lead to them."""
    return {
        (table, chain): [
            rule for rule in rules if chain.startswith(_KUBE) or any(_leads_to_kube(option) for option in rule)
        ]
        for (table, chain), rules in chains.items()
    }


def _leads_to_kube(option: tuple[str, ...]) -> bool:
    return option[0] in ("--jump", "--goto") and option[-1].startswith(_KUBE)
