"""A packet's way through rules, computed: where the nat table may send it, masqueraded or not, and which rule refuses.

It knows the matches and targets of kube-proxy's rules, and stops at any other. Where a rule draws lots, both ways are
gone. xt_recent has no entries.
"""

from dataclasses import dataclass
from ipaddress import ip_network

from proxylab.addresses import IPAddress
from proxylab.engines.embedded.iptables.meaning import Chains, RuleMeaning

ENDS = {"DROP", "REJECT", "ACCEPT", "MASQUERADE"}
SILENT = {
    *("--comment", "--nfacct-name", "--mode", "--probability", "--name", "--set", "--seconds", "--reap"),
    *("--jump", "--random-fully", "--to-destination", "--set-xmark"),
}
"""What says nothing of the packet: targets, and matches that hold for some."""


@dataclass(frozen=True)
class Packet:
    """The first packet of a connection, as a node sees it."""

    source: IPAddress
    destination: IPAddress
    port: int
    protocol: str = "tcp"
    from_node: bool = False
    to_node: bool = False


@dataclass(frozen=True)
class Fate:
    """``endpoints`` that it may reach, each with whether it is masqueraded; ``refused`` by REJECT or DROP otherwise."""

    endpoints: frozenset[tuple[str, bool]] = frozenset()
    refused: str = ""


def walk(chains: Chains, packet: Packet) -> Fate:
    """What becomes of the packet under these rules."""
    reached, left = _through(chains, "nat", "KUBE-SERVICES", packet, False)
    if not left:
        return Fate(frozenset(reached))
    assert not reached, "some of it is translated and some is not"
    hooks = ["OUTPUT"] if packet.from_node else []
    hooks.append("INPUT" if packet.to_node else "FORWARD" if not packet.from_node else "")
    for hook in filter(None, hooks):
        # A fresh chain: each jump was put at the top, so the last one comes first.
        for rule in chains.get(("filter", hook), []):
            verdict = _judged(chains, rule, packet)
            if verdict:
                return Fate(refused=verdict)
    return Fate()


def _judged(chains: Chains, rule: RuleMeaning, packet: Packet) -> str:
    if not _fits(rule, packet, marked=False):
        return ""
    target = _target(rule)
    if target in ENDS:
        return target if target != "ACCEPT" else ""
    inner = (_judged(chains, each, packet) for each in chains.get(("filter", target), []))
    return next(filter(None, inner), "")


def _through(
    chains: Chains, table: str, chain: str, packet: Packet, marked: bool
) -> tuple[set[tuple[str, bool]], set[bool]]:
    """The endpoints that are reached from here, and the marks with which the packet may fall out of the chain."""
    reached: set[tuple[str, bool]] = set()
    alive = {marked}
    for rule in chains[table, chain]:
        next_alive: set[bool] = set()
        for mark in alive:
            if not _fits(rule, packet, marked=mark):
                next_alive.add(mark)
                continue
            target = _target(rule)
            if any(option[0] == "--probability" for option in rule):
                next_alive.add(mark)
            if target == "DNAT":
                reached.add((_value(rule, "--to-destination"), mark))
            elif target == "MARK":
                next_alive.add(True)
            elif target:
                found, left = _through(chains, table, target, packet, mark)
                reached |= found
                next_alive |= left
            else:
                next_alive.add(mark)
        alive = next_alive
    return reached, alive


def _fits(rule: RuleMeaning, packet: Packet, *, marked: bool) -> bool:
    if any(option[0] == "--rcheck" for option in rule):
        return False
    for option in rule:
        negated, (name, *values) = option[0] == "!", option[1:] if option[0] == "!" else option
        if name not in SILENT and _holds(name, values[0] if values else "", packet, marked) is negated:
            return False
    return True


def _holds(name: str, value: str, packet: Packet, marked: bool) -> bool:
    known = {
        "--src-type": packet.from_node,
        "--dst-type": packet.to_node,
        "--mark": marked,
        "--in-interface": False,
        "--ctstate": "NEW" in value,
        "--protocol": packet.protocol == value,
        "--dport": str(packet.port) == value,
    }
    if name in known:
        return known[name]
    assert name in ("--source", "--destination"), f"an unknown match: {name}"
    return (packet.source if name == "--source" else packet.destination) in ip_network(value)


def _target(rule: RuleMeaning) -> str:
    return _value(rule, "--jump")


def _value(rule: RuleMeaning, name: str) -> str:
    return next((option[1] for option in rule if option[0] == name), "")
