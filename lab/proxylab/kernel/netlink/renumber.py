"""Changes the addresses of nodes in a built lab, and all that other machines route or tunnel by them.

The former address goes first: a second one of its network on the device would be a secondary one, and go with it
(``__inet_del_ifa``, net/ipv4/devinet.c). With a device's last IPv4 address the kernel removes the device's routes
(``fib_disable_ip``), so those of the plan are written again. It also forgets the connections that were masqueraded with
the address (``masq_inet_event``, net/netfilter/nf_nat_masquerade.c).
"""

from collections.abc import Iterator

from msgspec.structs import replace

from proxylab.kernel.netlink.addresses_answer import make_addresses_answer
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.messages import NetlinkRequest
from proxylab.kernel.netlink.requests import (
    add_forwarding_entry,
    delete_address,
    move_vxlan,
    put_address,
    replace_route,
)
from proxylab.plan.model import Device, Plan, PlannedNamespace, ends_by_namespace


def renumber(wiring: Wiring, plan: Plan) -> Wiring:
    """Make the addresses and routes of a lab those of ``plan``, which differs from its own in nothing else.

    When this returns, the new addresses answer. Raises ``InternalError``.
    """
    before = {each.name: each for each in wiring.plan.namespaces}
    ends = ends_by_namespace(plan)
    changed = [each for each in plan.namespaces if each != before[each.name]]
    for namespace in changed:
        devices: list[Device] = [*ends[namespace.name], *namespace.bridges, *namespace.vxlans]
        indexes = {"lo": 1} | {each.device: each.index for each in devices}
        wiring.routes[namespace.name].send([*_requests(before[namespace.name], namespace, indexes)])
    for namespace in changed:
        make_addresses_answer(plan, wiring.namespaces, wiring.routes, only=namespace.name)
    return replace(wiring, plan=plan)


def _requests(before: PlannedNamespace, after: PlannedNamespace, indexes: dict[str, int]) -> Iterator[NetlinkRequest]:
    gone = [each for each in before.addresses if each not in after.addresses]
    new = [each for each in after.addresses if each not in before.addresses]
    yield from (delete_address(each, indexes[each.device]) for each in gone)
    yield from (put_address(each, indexes[each.device]) for each in new)
    yield from (move_vxlan(each) for each in after.vxlans if each not in before.vxlans)
    tunnels = (each for each in after.forwarding if each not in before.forwarding)
    yield from (add_forwarding_entry(each, indexes[each.device]) for each in tunnels)
    renewed = {each.device for each in new}
    for route in after.routes:
        if route not in before.routes or renewed.intersection(route.devices):
            yield replace_route(route, *(indexes[each] for each in route.devices))
