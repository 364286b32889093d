"""A kernel in memory, for tests of code that builds upon a network.

``FakeKernel`` has the interface of ``proxylab.kernel.netlink.survey.Kernel``, and raises a kernel's errors.
``tests/kernel/test_fake_kernel.py`` verifies it: it and the machine's kernel realise the same plans, valid and invalid,
and the test compares every visible result.

Example:
    >>> from proxylab.plan.model import Namespace, Plan, Role, Sysctl
    >>> forwards = Sysctl("net.ipv4.ip_forward", "1")
    >>> plan = Plan(namespaces=(Namespace(name="node-a", role=Role.NODE, sysctls=(forwards,)),), links=())
    >>> with FakeKernel().realise(plan) as network:
    ...     network.sysctl("node-a", "net.ipv4.ip_forward")
    '1'
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.errors import CapabilityError, InternalError
from proxylab.kernel.netlink.survey import Link, Survey
from proxylab.plan.model import (
    Address,
    Bridge,
    Device,
    LinkEnd,
    Namespace,
    Plan,
    Route,
    Sysctl,
    Vxlan,
    ends_by_namespace,
)

__all__ = ["FakeKernel", "FakeNetwork"]

_LOOPBACK = Link("lo", 1, "", up=True, mtu=65536)
_MTU = 1500
_VXLAN_OVERHEAD = {Family.IPV4: 50, Family.IPV6: 70}  # outer headers, drivers/net/vxlan
_LONGEST_NAME = 15  # IFNAMSIZ with its terminating zero


class FakeNetwork:
    """A plan as if it were real."""

    def __init__(self, surveys: dict[str, Survey], sysctls: dict[str, dict[str, str]]) -> None:
        self._surveys = surveys
        self._sysctls = sysctls

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The names of the namespaces, in the order in which they were made."""
        return tuple(self._surveys)

    def survey(self, namespace: str) -> Survey:
        """The contents of a namespace. Raises ``KeyError``."""
        return self._surveys[namespace]

    def sysctl(self, namespace: str, name: str) -> str | None:
        """The value that the plan has written; ``None`` for a sysctl that it does not write. Raises ``KeyError``."""
        return self._sysctls[namespace].get(name)


class FakeKernel:
    """A kernel with every feature but those it ``lacks``: names of sysctls, and ``vxlan``."""

    def __init__(self, lacks: Collection[str] = ()) -> None:
        self._lacks = frozenset(lacks)

    @contextmanager
    def realise(self, plan: Plan) -> Iterator[FakeNetwork]:
        """Realise a plan in memory for the length of the block.

        Raises:
            CapabilityError: the plan needs a feature that this kernel lacks.
            InternalError: the plan is invalid.
        """
        ends = ends_by_namespace(plan)
        sysctls = {each.name: dict(self._written(each, each.sysctls)) for each in plan.namespaces}
        for namespace in plan.namespaces:
            _check_devices(namespace, ends[namespace.name])
        surveys = {}
        for namespace in plan.namespaces:
            sysctls[namespace.name] |= self._written(namespace, namespace.device_sysctls)
            surveys[namespace.name] = self._survey(namespace, ends[namespace.name])
        yield FakeNetwork(surveys, sysctls)

    def _written(self, namespace: Namespace, sysctls: tuple[Sysctl, ...]) -> dict[str, str]:
        for sysctl in sysctls:
            if not sysctl.name.startswith("net.") or ".." in sysctl.name:
                raise InternalError(f"{namespace.name}: {sysctl.name} is not a sysctl of a network namespace")
        for sysctl in sysctls:
            if sysctl.required and sysctl.name in self._lacks:
                raise CapabilityError(
                    f"{sysctl.name}: {sysctl.value!r} could not be written to it in {namespace.name}",
                    "use a kernel that has it per network namespace, or take it out of the scenario",
                )
        return {each.name: each.value for each in sysctls if each.name not in self._lacks}

    def _survey(self, namespace: Namespace, ends: list[LinkEnd]) -> Survey:
        if namespace.vxlans and "vxlan" in self._lacks:
            raise CapabilityError("VXLAN devices", "load the kernel's module as root: 'modprobe vxlan'")
        made: list[Device] = [*ends, *namespace.bridges, *namespace.vxlans]
        known = {"lo", *(each.device for each in made)}
        named = [each.underlay for each in namespace.vxlans]
        named += [each.device for each in namespace.addresses]
        named += [end.master for end in ends if end.master is not None]
        named += [each.device for each in namespace.neighbours] + [each.device for each in namespace.forwarding]
        named += [device for route in namespace.routes for device in route.devices]
        for device in named:
            if device not in known:
                raise InternalError(f"the plan names {namespace.name}/{device}, which it does not make")
        _check_addresses(namespace)
        _check_routes(namespace)
        ports = {end.device: _of_end(end) for end in ends}
        tops = [_of_bridge(bridge, list(ports.values())) for bridge in namespace.bridges]
        tunnels = [_of_vxlan(vxlan, ports[vxlan.underlay].mtu) for vxlan in namespace.vxlans]
        return Survey(
            frozenset((_LOOPBACK, *ports.values(), *tops, *tunnels)),
            frozenset(namespace.addresses),
            frozenset(replace(route, device="") if route.unreachable else route for route in namespace.routes),
            frozenset(namespace.neighbours),
            frozenset(namespace.rules),
        )


def _of_end(end: LinkEnd) -> Link:
    return Link(end.device, end.index, end.mac, up=True, mtu=end.mtu or _MTU, master=end.master)


def _of_bridge(bridge: Bridge, links: list[Link]) -> Link:
    """A bridge takes the smallest MTU of its ports (br_mtu_auto_adjust, net/bridge/br_if.c)."""
    smallest = min((link.mtu for link in links if link.master == bridge.device), default=_MTU)
    return Link(bridge.device, bridge.index, bridge.mac, up=True, mtu=smallest)


def _of_vxlan(vxlan: Vxlan, underlay: int) -> Link:
    return Link(vxlan.device, vxlan.index, vxlan.mac, up=True, mtu=underlay - _VXLAN_OVERHEAD[Family.of(vxlan.local)])


def _refused(namespace: Namespace, what: str, name: str) -> InternalError:
    return InternalError(f"{namespace.name}: the kernel refused to {what}: {name}")


def _check_devices(namespace: Namespace, ends: list[LinkEnd]) -> None:
    names, indexes = {"lo"}, {1}
    devices: list[Bridge | LinkEnd] = [*namespace.bridges, *ends]
    for device in devices:
        if len(device.device) > _LONGEST_NAME:
            raise _refused(namespace, f"make {device.device}", "ERANGE")
        if device.device in names:
            raise _refused(namespace, f"make {device.device}", "EEXIST")
        if device.index in indexes:
            raise _refused(namespace, f"make {device.device}", "EEXIST")
        names.add(device.device)
        indexes.add(device.index)


def _check_addresses(namespace: Namespace) -> None:
    seen: set[Address] = set()
    for address in namespace.addresses:
        if address in seen:
            raise _refused(namespace, f"give {address.device} the address {address.interface}", "EEXIST")
        seen.add(address)


def _check_routes(namespace: Namespace) -> None:
    """Check that each gateway is reachable by an earlier route, and each destination unique in its table."""
    seen: set[tuple[object, int]] = set()
    reached: list[Route] = []
    for route in namespace.routes:
        key = route.destination, route.table
        if key in seen:
            raise _refused(namespace, f"route {route.destination}", "EEXIST")
        seen.add(key)
        ways = [(hop.device, hop.via) for hop in route.hops]
        if route.via is not None and not route.onlink:
            ways.append((route.device, route.via))
        for device, gateway in ways:
            if not _is_near(device, gateway, namespace, reached):
                six = Family.of(gateway) is Family.IPV6
                raise _refused(namespace, f"route {route.destination}", "EHOSTUNREACH" if six else "ENETUNREACH")
        reached.append(route)


def _is_near(device: str, gateway: IPAddress, namespace: Namespace, reached: list[Route]) -> bool:
    """Whether an address or a route on the link puts the gateway behind that device."""
    if any(gateway in each.interface.network for each in namespace.addresses if each.device == device):
        return True
    direct = (route for route in reached if route.via is None and not route.hops and route.device == device)
    return any(gateway in route.destination for route in direct)
