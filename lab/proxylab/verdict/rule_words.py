"""A rule in words: its name, what it does, and the condition under which a Service proxy's rule masquerades."""

from collections.abc import Callable

from proxylab.addresses import IPAddress
from proxylab.evidence.ipvs import VIRTUAL_SERVERS
from proxylab.evidence.words import endpoint, listed
from proxylab.plan.resolved import ResolvedProbe
from proxylab.verdict.counted_rules import NFT_TABLE, CountedRule, within

HAIRPINS = "@hairpin-connections"
"""The set of connections from an endpoint to itself, which kube-proxy masquerades in mode nftables."""

_OF_HAIRPINS = (HAIRPINS, "for solving hairpin purpose")
"""How kube-proxy's texts of modes nftables and ipvs name connections from an endpoint to itself."""


def the_rule(rule: CountedRule) -> str:
    """A rule, named so that a reader can find it: its comment and its chain, or the map that it looks up.

    A virtual server of IPVS stands for its destinations, in ipvsadm's options.
    """
    if rule.count.table == VIRTUAL_SERVERS:
        return f"its virtual server {rule.count.chain}{', which' if rule.target == 'REJECT' else ''}{_has_none(rule)}"
    if rule.comment:
        return f'its rule "{rule.comment}" in {rule.count.chain}'
    asking = f", which looks up the map {rule.looked_up}" if rule.looked_up else ""
    return f"its rule in {rule.count.chain}{asking}"


def rule_action(rule: CountedRule, resolved: ResolvedProbe, *, mark: int | None = None, out_device: str = "") -> str:
    """What a rule did to a packet of a probe.

    Args:
        rule: that matched.
        resolved: the probe of the packet.
        mark: of the packet before the rule, if known.
        out_device: by which the packet leaves, if known.

    Returns:
        A clause about "it", the packet; empty for a rule without a target.
    """
    if not rule.target:
        return ""
    if rule.count.table == VIRTUAL_SERVERS and rule.target == "REJECT":
        return f"rejects it with ICMP port unreachable: the virtual server{_has_none(rule)}"
    if rule.marks_for_masquerading:
        why = why_masqueraded(rule, resolved).rstrip(":")
        if rule.count.table == NFT_TABLE:
            return f"marks it for masquerading{why}"
        return f"masquerades{why or _because(rule)}"
    if rule.target in _ACTIONS:
        return _ACTIONS[rule.target](rule, mark, out_device)
    return f"goes to {short(rule.target)}{_because(rule)}"


def why_masqueraded(rule: CountedRule, resolved: ResolvedProbe) -> str:
    """Why a rule marks the probe's packet for masquerading, if its matches show it.

    Returns:
        A clause that begins with a blank and ends with a colon; empty if the matches do not show why.
    """
    client = resolved.sender.address
    if is_from_itself(rule, client) or any(each in rule.count.text for each in _OF_HAIRPINS):
        return " because the client is the endpoint:"
    networks, devices = rule.excepted_sources, rule.excepted_devices
    if networks and not any(within(client, each) for each in networks):
        return f" because the client is not in {listed(networks, 'or')}{_though_a_pod(resolved)}:"
    if devices:
        return f" because it did not come in by {listed(devices, 'or')}{_though_a_pod(resolved)}:"
    return ""


def _though_a_pod(resolved: ResolvedProbe) -> str:
    """The clause that makes it a mistake: the client is a pod of this cluster."""
    pods = {pod.address for pod in resolved.receivers if not pod.ports}  # a receiver on a node has the node's address
    return ", though it is a pod" if resolved.sender.address in pods else ""


def is_from_itself(rule: CountedRule, client: IPAddress) -> bool:
    """Whether a rule matches packets from this one address: those that an endpoint sends to itself."""
    return [each.removesuffix("/32").removesuffix("/128") for each in rule.sources] == [str(client)]


def _has_none(rule: CountedRule) -> str:
    """Why a virtual server rejects a packet: it has no destination, or none that takes a new connection."""
    if rule.target != "REJECT":
        return ""
    return " has destinations of weight 0 only" if " -w 0" in rule.count.text else " has no destination"


def short(chain: str) -> str:
    """A chain's name with its hash cut short, and without what follows the hash: a few characters tell chains apart.

    Mode nftables writes the port or endpoint behind the hash (``endpoint-5OJB2KTY-default/echo/tcp/http__…``).
    """
    parts = chain.split("-")
    if "/" in chain and len(parts) > 2 and len(parts[1]) == 8 and parts[1].isalnum() and parts[1].isupper():
        return f"{parts[0]}-{parts[1]}-…"
    hashed = len(parts) > 2 and len(parts[-1]) == 16 and parts[-1].isalnum() and parts[-1].isupper()
    return f"{'-'.join(parts[:-1])}-{parts[-1][:6]}…" if hashed else chain


def _because(rule: CountedRule) -> str:
    if rule.comment:
        return f': "{rule.comment}"'
    return f" by the map {rule.looked_up}" if rule.looked_up else ""


def _translated(rule: CountedRule) -> str:
    to = rule.translates_to
    where = endpoint(*to) if to else rule.value("--to-destination")
    return f"translates the destination{where and f' to {where}'}"


def _marked(rule: CountedRule, mark: int | None) -> str:
    """What MARK makes of the mark (xt_mark, ``--set-xmark value/mask``: clear the mask's bits, then xor the value)."""
    value, _, mask = rule.value("--set-xmark").partition("/")
    try:
        new = ((mark or 0) & ~int(mask or "0xffffffff", 16)) ^ int(value, 16)
    except ValueError:
        return "changes its mark"
    return "changes its mark" if mark is None else f"changes its mark from {mark:#x} to {new:#x}"


_ACTIONS: dict[str, Callable[[CountedRule, int | None, str], str]] = {
    "ACCEPT": lambda rule, mark, out: f"lets it pass{_because(rule)}",
    "DNAT": lambda rule, mark, out: _translated(rule),
    "DROP": lambda rule, mark, out: f"drops it{_because(rule)}",
    "MARK": lambda rule, mark, out: _marked(rule, mark),
    "MASQUERADE": lambda rule, mark, out: f"sets its source to the address of {out or 'the outgoing device'}",
    "REJECT": lambda rule, mark, out: f"rejects it with {rule.value('--reject-with') or 'ICMP'}{_because(rule)}",
    "REDIRECT": lambda rule, mark, out: f"leads it to port {rule.value('--to-ports')} of this node{_because(rule)}",
    "RETURN": lambda rule, mark, out: f"returns it to the calling chain{_because(rule)}",
    "SNAT": lambda rule, mark, out: f"sets its source to {rule.value('--to-source')}",
}
"""Targets of iptables-extensions(8) in words."""
