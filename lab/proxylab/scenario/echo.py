"""The checks of probes with ``send.protocol`` ICMP, and of a port that only such a probe may omit."""

from typing import Final

from proxylab.addresses import Transport
from proxylab.scenario.document import Location
from proxylab.scenario.model import Frontend, Manner, Outcome
from proxylab.scenario.problems import Problems
from proxylab.scenario.schema.expect import ExpectShape
from proxylab.scenario.schema.probe import AddressTargetShape, HostTargetShape, ServiceTargetShape
from proxylab.scenario.subject import Subject

__all__ = ["check_echo", "check_echo_expect", "is_echo"]

_PORTS: Final = (Frontend.NODE_PORT, Frontend.HEALTH_CHECK_NODE_PORT)
_ADDRESSES: Final = "allowed: clusterIP, externalIP, loadBalancerIP, or to: {address: …}"


def is_echo(subject: Subject) -> bool:
    """Whether the probe sends echo requests."""
    send = subject.probe.send
    return send is not None and send.protocol is Transport.ICMP


def check_echo(subject: Subject) -> None:
    """Note a port that an echo request cannot have, and a port that any other probe lacks."""
    target, send, problems, location = subject.probe.target, subject.probe.send, subject.problems, subject.location
    if not is_echo(subject):
        if send is not None and isinstance(target, HostTargetShape | AddressTargetShape) and target.port is None:
            problems.add(location["to"]["port"].key, "is missing", allowed="only an echo request (ICMP) has no port")
        return
    for port in (location["to"]["port"], location["from"]["port"]):
        if port.exists:
            problems.add(port.key, "an echo request has no port", allowed="remove the key")
    if isinstance(target, ServiceTargetShape) and target.via in _PORTS:
        what = f"{target.via} is a port, and an echo request has none"
        problems.add(location["to"]["via"].spot, what, allowed=_ADDRESSES)
    if location["send"]["as"].exists and send is not None and send.manner is Manner.CONNECT:
        what = "an echo request is a single packet, not a connection"
        problems.add(location["send"]["as"].spot, what, allowed="allowed: packet")


def check_echo_expect(expect: ExpectShape, location: Location, problems: Problems) -> None:
    """Note results that no echo request can have."""
    if expect.outcome is Outcome.REFUSED:
        what = "a network stack does not refuse an echo request"
        problems.add(location["outcome"].spot, what, allowed="allowed: delivered, rejected, dropped, untranslated")
    if expect.http is not None:
        problems.add(location["http"].key, "an echo request carries no HTTP", allowed="remove the key")
