"""The kernel in memory shows the same as the machine's kernel for every plan, and refuses the same."""

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Any

import pytest
from msgspec.structs import replace
from network_scenarios import BASIC, TUNNELLED
from sandboxed import sandboxed
from small_plan import small_plan

from proxylab.errors import LabError
from proxylab.kernel.netlink.survey import Kernel
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.plan.model import Address, Namespace, Plan, Route, Sysctl
from proxylab.plan.topology import draw
from proxylab.testing.kernel import FakeKernel

ABSENT = "net.ipv4.no_such_thing"


def with_node(**changes: Any) -> Plan:
    """The small plan with additions to its first node, after the existing items."""
    plan = small_plan()
    node = plan.namespace("node-a")
    changed = replace(node, **{name: (*getattr(node, name), *more) for name, more in changes.items()})
    return replace(plan, namespaces=tuple(changed if each is node else each for each in plan.namespaces))


def with_link(**changes: Any) -> Plan:
    """The small plan with a change at the node's end of its last link."""
    plan = small_plan()
    *others, last = plan.links
    return replace(plan, links=(*others, replace(last, first=replace(last.first, **changes))))


FAR4 = Route(IPv4Network("198.51.100.0/24"), "eth0", IPv4Address("192.0.2.1"))
FAR6 = Route(IPv6Network("2001:db8:1::/48"), "eth0", IPv6Address("2001:db8:ffff::1"))
WRONG: Mapping[str, Callable[[], Plan]] = {
    "an unplanned device": lambda: with_node(addresses=[Address("eth9", IPv4Interface("192.0.2.1/24"))]),
    "a route by such a device": lambda: with_node(routes=[Route(IPv4Network("192.0.2.0/24"), "eth9")]),
    "an address twice": lambda: with_node(addresses=[Address("eth0", IPv4Interface("172.18.0.2/16"))]),
    "a device twice": lambda: with_link(device="eth0"),
    "an index twice": lambda: with_link(index=12),
    "a name that is too long": lambda: with_link(device="sixteen-letters-"),
    "a route twice": lambda: with_node(routes=[Route(IPv4Network("10.244.0.10/32"), "pod-1")]),
    "a gateway on another link": lambda: with_node(routes=[replace(FAR4, via=IPv4Address("10.244.0.10"))]),
    "a gateway far away": lambda: with_node(routes=[FAR4]),
    "an IPv6 gateway far away": lambda: with_node(
        addresses=[Address("eth0", IPv6Interface("2001:db8::2/64"))], routes=[FAR6]
    ),
    "a sysctl of no namespace": lambda: with_node(sysctls=[Sysctl("kernel.hostname", "x")]),
    "a sysctl that there is not": lambda: with_node(sysctls=[Sysctl(ABSENT, "1")]),
}
RIGHT: Mapping[str, Callable[[], Plan]] = {
    "small": small_plan,
    "a gateway on the link by its route": lambda: with_node(
        routes=[replace(FAR4, device="pod-1", via=IPv4Address("10.244.0.10"))]
    ),
    "a gateway said to be on the link": lambda: with_node(routes=[replace(FAR4, onlink=True)]),
    "a sysctl that may be absent": lambda: with_node(sysctls=[Sysctl(ABSENT, "1", required=False)]),
    "links of another size": lambda: with_link(mtu=1400),
    **{name: lambda case=case: draw(case) for name, case in (BASIC | TUNNELLED).items()},  # type: ignore[misc]
}


def seen(kernel: Kernel | FakeKernel, plan: Plan) -> Any:
    """The survey of a built plan, or the error of the build."""
    try:
        with kernel.realise(plan) as network:
            assert network.namespaces == tuple(namespace.name for namespace in plan.namespaces)
            return {each.name: seen_in(network, each) for each in plan.namespaces}
    except LabError as error:
        names = re.findall(r"\bE[A-Z]{3,}\b|which it does not make|is not a sysctl|could not be written", str(error))
        return [type(error).__name__, *names]


def seen_in(network: Any, namespace: Namespace) -> Any:
    survey = network.survey(namespace.name)
    sysctls = (*namespace.sysctls, *namespace.device_sysctls)
    return {
        **{kind: sorted(str(each) for each in getattr(survey, kind)) for kind in survey.__struct_fields__},
        "sysctls": {each.name: network.sysctl(namespace.name, each.name) for each in sysctls},
    }


async def by_the_kernel(_: Launcher) -> dict[str, Any]:
    return {name: seen(Kernel(), make()) for name, make in (RIGHT | WRONG).items()}


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    found: dict[str, Any] = sandboxed(by_the_kernel, ordinary=True)
    return found


@pytest.mark.parametrize("case", RIGHT)
def test_the_fake_shows_what_the_kernel_shows(case: str, real: dict[str, Any]) -> None:
    assert isinstance(real[case], dict), real[case]
    assert seen(FakeKernel(lacks=[ABSENT]), RIGHT[case]()) == real[case]


@pytest.mark.parametrize("case", WRONG)
def test_the_fake_refuses_what_the_kernel_refuses(case: str, real: dict[str, Any]) -> None:
    assert isinstance(real[case], list), "the kernel took it"
    assert seen(FakeKernel(lacks=[ABSENT]), WRONG[case]()) == real[case]
