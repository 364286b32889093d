"""Builds a pod that is added to a lab that stands, and lets it go again."""

from collections.abc import Callable
from contextlib import ExitStack, closing

from proxylab.kernel.netlink.addresses_answer import make_addresses_answer
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.links_carry import make_links_carry
from proxylab.kernel.netlink.requests import (
    add_address,
    add_neighbour,
    add_route,
    add_veth,
    delete_device,
    set_loopback_up,
    set_up,
)
from proxylab.kernel.netlink.socket import open_netlink
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.sysctl import write_sysctls
from proxylab.plan.added_pod import AddedPod
from proxylab.plan.model import Plan


def build_pod(added: AddedPod, wiring: Wiring, make: Callable[[str], NetNs]) -> NetNs:
    """Make the pod's namespace, by ``make``, and its link; return when its addresses answer.

    Raises:
        InternalError: the kernel refused a request; nothing of the pod is left.
    """
    node, outer, inner = added.node.name, added.link.first, added.link.second
    on_node = wiring.routes[node]
    with ExitStack() as undone:
        netns = make(added.pod.name)
        undone.callback(netns.close)
        write_sysctls(netns, added.pod.sysctls)
        on_node.send([add_veth(added.link, netns)])
        undone.callback(remove_pod, added, wiring)
        with closing(open_netlink(netns)) as in_pod:
            in_pod.send(
                [
                    set_loopback_up(),
                    *(add_address(each, inner.index) for each in added.pod.addresses),
                    set_up(inner),
                    *(add_neighbour(each, inner.index) for each in added.pod.neighbours),
                ]
            )
            on_node.send(
                [
                    *(add_address(each, outer.index) for each in added.node.addresses),
                    set_up(outer),
                    *(add_neighbour(each, outer.index) for each in added.node.neighbours),
                    *(add_route(each, outer.index) for each in added.node.routes),
                ]
            )
            in_pod.send([add_route(each, inner.index) for each in added.pod.routes])
            part = Plan(namespaces=(added.node, added.pod), links=(added.link,))
            namespaces = {node: wiring.namespaces[node], added.pod.name: netns}
            routes = {node: on_node, added.pod.name: in_pod}
            make_links_carry(part, namespaces, routes)
            make_addresses_answer(part, namespaces, routes, only=added.pod.name)
        undone.pop_all()
        return netns


def remove_pod(added: AddedPod, wiring: Wiring) -> None:
    """Delete the pod's link, with all that the kernel keeps for it on the node."""
    outer = added.link.first
    wiring.routes[added.node.name].send([delete_device(outer.device, outer.index)])
