"""Service ports are made anew for changed objects only, and an unsound object harms no other."""

import pytest
from msgspec.structs import replace
from rule_cases import HERE, Addresses, echo, endpoint, here_and_there, slice_of
from whole_ports import service_ports

from proxylab.addresses import Family
from proxylab.cluster.objects import EndpointPort, EndpointSlice, Service, ServicePort
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.tracker import PortTracker

A = Addresses(Family.IPV4)
ECHO = echo(A)
OTHER = echo(A, name="other", cluster_ips=(A.of("cluster", 21),))
SLICES = tuple(slice_of(service, A, *here_and_there(A)) for service in (ECHO, OTHER))
VIEW = ClusterView((ECHO, OTHER), SLICES)


def test_what_did_not_change_is_the_very_same_object() -> None:
    tracker = PortTracker(Family.IPV4, HERE)
    first = tracker.update(VIEW)
    changed = ClusterView(VIEW.services, (slice_of(ECHO, A, endpoint(A, 10)), SLICES[1]))
    second = tracker.update(changed)
    assert second == service_ports(changed, Family.IPV4, HERE)
    assert second[1] is first[1]
    assert second[0] is not first[0]


def test_a_service_that_went_is_forgotten() -> None:
    tracker = PortTracker(Family.IPV4, HERE)
    tracker.update(VIEW)
    assert tracker.update(ClusterView((ECHO,), SLICES)) == service_ports(
        ClusterView((ECHO,), SLICES), Family.IPV4, HERE
    )


PORT = ServicePort(port=80, target_port=8080)
BAD = replace(ECHO, name="bad")


@pytest.mark.parametrize(
    ("unsound", "fault"),
    [
        (replace(BAD, name='ba"d'), "the name"),
        (replace(BAD, ports=(replace(PORT, port=0),)), "port 0"),
        (replace(BAD, ports=(replace(PORT, node_port=70000),)), "node port 70000"),
        (replace(BAD, ports=(replace(PORT, name="p\n-F"),)), "the port name"),
        (replace(BAD, ports=(PORT, replace(PORT, port=81))), "two TCP ports"),
        (replace(BAD, affinity_timeout=0), "affinity"),
        (replace(BAD, health_check_node_port=-1), "health-check"),
    ],
)
def test_an_unsound_service_is_left_out_by_name(unsound: Service, fault: str) -> None:
    tracker = PortTracker(Family.IPV4, HERE)
    ports = tracker.update(ClusterView((ECHO, unsound, OTHER), SLICES))
    assert ports == service_ports(VIEW, Family.IPV4, HERE)
    (line,) = tracker.left_out
    assert line.startswith(f"Service default/{unsound.name} is left out: ")
    assert fault in line


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"ports": (EndpointPort(port=70000),)}, "70000"),
        ({"endpoints": (replace(endpoint(A, 9), addresses=()),)}, "no address"),
        ({"endpoints": (endpoint(Addresses(Family.IPV6), 9),)}, "fd00:42::9"),
    ],
)
def test_an_unsound_slice_is_left_out_and_its_sisters_count(changes: dict[str, object], fault: str) -> None:
    bad: EndpointSlice = replace(SLICES[0], name="echo-bad", **changes)
    tracker = PortTracker(Family.IPV4, HERE)
    assert tracker.update(ClusterView(VIEW.services, (bad, *SLICES))) == service_ports(VIEW, Family.IPV4, HERE)
    (line,) = tracker.left_out
    assert line.startswith("EndpointSlice default/echo-bad is left out: ")
    assert fault in line
    tracker.update(VIEW)
    assert tracker.left_out == ()
