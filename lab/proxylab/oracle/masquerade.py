"""Whose address an endpoint sees: which packets a node masquerades, and as what (KEP-2450, the tutorial on source IPs).

A proxy masquerades what would otherwise be answered past the node that translated it: a pod that reaches itself, and
everything by way of another frontend than the cluster IP under ``externalTrafficPolicy: Cluster``. At a cluster IP it
masquerades what no pod sends, as far as it can tell pods apart (``detectLocalMode``).
"""

from collections.abc import Sequence
from typing import Final

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.cluster.configuration import DetectLocalMode
from proxylab.cluster.objects import TrafficPolicy
from proxylab.encoding import Record
from proxylab.oracle.moment import Moment, ServedPort


class Masquerading(Record, frozen=True):
    """Whether the proxy masquerades a packet, and the rows that say so."""

    happens: bool
    rows: tuple[str, ...]


def _pod_networks(moment: Moment, node: str, version: int) -> Sequence[IPNetwork] | None:
    """The networks by which the proxy of ``node`` tells pods of a family; ``None`` if it does so by devices."""
    match moment.setting_of(node).configuration.detect_local_mode:
        case DetectLocalMode.CLUSTER_CIDR:
            known = moment.cluster_cidrs(node)
        case DetectLocalMode.NODE_CIDR:
            known = moment.nodes[node].pod_cidrs if node in moment.nodes else ()
        case _:
            return None
    return [each for each in known if each.version == version]


def _tells_pods_apart(moment: Moment, node: str, source: IPAddress) -> bool:
    """Whether the proxy of ``node`` has a way to tell pods from other senders in the family of ``source``."""
    networks = _pod_networks(moment, node, source.version)
    return networks is None or bool(networks)


def _is_pod(moment: Moment, node: str, device: str | None, source: IPAddress) -> bool:
    """Whether the proxy of ``node`` takes a packet that arrives by ``device`` for one of a pod.

    ``device`` is ``None`` for packets of the node's own programs.
    """
    networks = _pod_networks(moment, node, source.version)
    if networks is not None:
        return any(source in network for network in networks)
    configuration = moment.setting_of(node).configuration
    if configuration.detect_local_mode is DetectLocalMode.BRIDGE_INTERFACE:
        return device == configuration.bridge_interface
    return device is not None and device.startswith(configuration.interface_name_prefix)


HAIRPIN: Final = Masquerading(True, ("masquerade-hairpin",))
"""Of a packet whose sender is its endpoint."""


def masquerading(moment: Moment, served: ServedPort, node: str, device: str | None, source: IPAddress) -> Masquerading:
    """Whether ``node`` masquerades a packet that it translates to another machine than its sender, and why."""
    if served.is_external:
        return Masquerading(*_at_other_frontends(moment, served, node, device, source))
    if moment.setting_of(node).masquerades_all:
        return Masquerading(True, ("masquerade-all",))
    if not _tells_pods_apart(moment, node, source):
        return Masquerading(False, ("masquerade-without-detection",))
    if _is_pod(moment, node, device, source):
        return Masquerading(False, ("preserve-pod-at-cluster-ip",))
    return Masquerading(
        True, ("masquerade-node-at-cluster-ip" if device is None else "masquerade-others-at-cluster-ip",)
    )


def _at_other_frontends(
    moment: Moment, served: ServedPort, node: str, device: str | None, source: IPAddress
) -> tuple[bool, tuple[str, ...]]:
    if served.service.external_traffic_policy is TrafficPolicy.CLUSTER:
        return True, ("masquerade-external-cluster",)
    if is_exempt_pod(moment, node, device, source):
        return False, ("preserve-pod-under-local",)
    if device is None:
        return True, ("masquerade-node-under-local",)
    return False, ("preserve-external-local",)


def is_exempt_pod(moment: Moment, node: str, device: str | None, source: IPAddress) -> bool:
    """Whether policy Local does not hold for the sender, since the proxy takes it for a pod of the cluster."""
    return _tells_pods_apart(moment, node, source) and _is_pod(moment, node, device, source)
