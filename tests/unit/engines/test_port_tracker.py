"""Service ports are made anew for changed objects only."""

from rule_cases import HERE, Addresses, echo, endpoint, here_and_there, slice_of
from whole_ports import service_ports

from proxylab.addresses import Family
from proxylab.engines.embedded.ports import ClusterView, PortTracker

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


def test_external_ips_of_a_closed_gate_are_not_served_but_open_the_service_to_the_outside() -> None:
    service = echo(A, external_ips=(A.of("external", 7),))
    slices = (slice_of(service, A, *here_and_there(A)),)
    (allowed,) = PortTracker(Family.IPV4, HERE).update(ClusterView((service,), slices))
    (off,) = PortTracker(Family.IPV4, HERE).update(ClusterView((service,), slices, allows_external_ips=False))
    assert (allowed.external_ips, off.external_ips) == ((A.of("external", 7),), ())
    assert allowed.externally_accessible
    assert off.externally_accessible
