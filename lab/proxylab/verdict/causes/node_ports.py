"""Why a node serves no node port at the address that a probe dials: ``nodePortAddresses`` leaves it out.

A packet to such an address meets no rule of the proxy. The node's own stack refuses it, unless a program listens there.
"""

from typing import Final

from proxylab.addresses import Family
from proxylab.evidence.evidence import Packet
from proxylab.evidence.words import endpoint, listed
from proxylab.plan.dialled_service import DialledService
from proxylab.plan.resolved import STACK
from proxylab.scenario.words import Frontend
from proxylab.verdict.causes.failure import Failure
from proxylab.verdict.counted_rules import NFT_TABLE
from proxylab.verdict.hops import origin

_ANSWERS: Final = ((Packet.RESET, "a reset"), (Packet.PORT_UNREACHABLE, "ICMP port unreachable"))


def not_served(failure: Failure) -> str:
    """The dialled node refused the packet to a node port itself, and no rule translated or rejected it."""
    refused = _refused_by(failure)
    if refused is None or failure.service is None or failure.service.via is not Frontend.NODE_PORT:
        return ""
    node, answer = refused
    there = endpoint(*failure.case.dialled)
    return f"{node} serves no node port at {there}: it answered with {answer}, as no program of it listens there."


def _refused_by(failure: Failure) -> tuple[str, str] | None:
    """The node that answered for itself, and what with; ``None`` where a rule took part, or another machine did."""
    case, flow, sender = failure.case, failure.flow, failure.case.resolved.sender
    if flow.arrivals or case.translations or case.rejecting or case.dropping:
        return None
    for packet, answer in _ANSWERS:
        heard = any(each.packet is packet for each in (*flow.resets, *flow.unreachables))
        first = origin(flow, packet)
        node = sender.namespace if first is None and sender.device == STACK else "" if first is None else first.maker
        if heard and node in case.resolved.nodes:
            return node, answer
    return None


def why_not_served(failure: Failure, dialled: DialledService) -> str:
    """The setting that leaves the address out, with the cure; empty where that is not the reason."""
    refused = _refused_by(failure) if dialled.via is Frontend.NODE_PORT else None
    if refused is None:
        return ""
    node, address, proxy = refused[0], failure.case.resolved.destination, dialled.proxy
    by_nft = any(count.table == NFT_TABLE for count in failure.case.evidence.counts)
    if address.is_loopback:
        if by_nft:
            served = "nodePortAddresses: [primary, localhost] lets kube-proxy 1.37 serve them there"
            return f"mode nftables serves no node ports at loopback addresses; {served}."
        if address.version == 4 and not proxy.localhost_node_ports:
            return f"localhostNodePorts is false, so {node} serves no node ports at {address}; true serves them."
        if address.version == 6:
            return f"no mode serves node ports at {address}."
    networks = [each for each in proxy.node_port_addresses if Family.of(each) is Family.of(address)]
    cure = f"with {address}/{address.max_prefixlen} among them, {node} serves node ports there"
    if proxy.node_port_primary:
        instead = f"networks that hold {address} let {node} serve node ports there"
        return f"nodePortAddresses is primary, and {address} is not {node}'s primary address; {instead}."
    if networks:
        outside = not any(address in each for each in networks)
        return f"{address} is not in nodePortAddresses ({listed(list(map(str, networks)))}); {cure}." if outside else ""
    alone = f"serves node ports at {node}'s primary addresses alone"
    return f"nodePortAddresses is empty, so mode nftables {alone}; 0.0.0.0/0 serves all addresses." if by_nft else ""
