"""Which source address a masquerade gives.

Owns: ``snat_source``.
Must not: know which packets an engine masquerades.

MASQUERADE takes the first address of global scope on the device by which the packet leaves, and where that device has
none, the first one of the namespace (nf_nat_masquerade_ipv4 calls inet_select_addr, net/ipv4/devinet.c). A packet that
leaves a node by its uplink bears the node's address; one that goes to a pod of the same node, the gateway's.
"""

from lab.ip import IPAddress
from lab.plan.model import Namespace, Plan, Role
from lab.plan.names import UPLINK

__all__ = ["snat_source"]


def snat_source(plan: Plan, node: str, device: str) -> IPAddress:
    """The address behind which ``node`` hides what leaves by its ``uplink``, or to its ``pods``.

    Raises:
        LookupError: there is no such node, or it has no device of that kind. The message says what there is.
    """
    nodes = [namespace for namespace in plan.namespaces if namespace.role is Role.NODE]
    namespace = next((namespace for namespace in nodes if namespace.name == node), None)
    if namespace is None:
        raise LookupError(f"there is no node {node!r}; there are {', '.join(namespace.name for namespace in nodes)}")
    by_kind = {"uplink": [UPLINK], "pods": _pod_devices(plan, node)}
    devices = by_kind.get(device)
    if devices is None:
        raise LookupError(f"a node has no device {device!r}; there are {', '.join(by_kind)}")
    if not devices:
        raise LookupError(f"{node} has no pods, so nothing leaves by a pod device of it")
    return _selected(namespace, devices[0])


def _pod_devices(plan: Plan, node: str) -> list[str]:
    pods = {namespace.name for namespace in plan.namespaces if namespace.role is Role.POD}
    return [
        end.device
        for link in plan.links
        for end, other in (link.ends, link.ends[::-1])
        if end.namespace == node and other.namespace in pods
    ]


def _selected(namespace: Namespace, device: str) -> IPAddress:
    own = [address for address in namespace.addresses if address.device == device]
    return (own or namespace.addresses)[0].interface.ip
