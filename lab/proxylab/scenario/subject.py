"""``Subject``: the probe under check and the scenario around it, for ``flows`` and ``expectations``."""

from collections.abc import Mapping

from msgspec import Struct

from proxylab.addresses import Transport
from proxylab.scenario.document import Location
from proxylab.scenario.inventory import Inventory
from proxylab.scenario.manifests import Manifests
from proxylab.scenario.model import Frontend, PodGroup
from proxylab.scenario.parts import Parts, ProbeParts
from proxylab.scenario.problems import Problems
from proxylab.scenario.references import service_id
from proxylab.scenario.schema.probe import ServiceTargetShape

__all__ = ["Subject", "is_echo", "names_pods"]


class Subject(Struct, frozen=True):
    """One probe, and its scenario at the moment when the lab sends the probe.

    ``pods`` are the single pods by name; ``None`` if a mistake in the file hides them.
    """

    probe: ProbeParts
    location: Location
    parts: Parts
    inventory: Inventory
    manifests: Manifests
    pods: Mapping[str, PodGroup] | None
    problems: Problems


def names_pods(subject: Subject) -> bool:
    """Whether the probe dials the name of a headless Service, which resolves to the pods' own addresses."""
    target = subject.probe.target
    if not isinstance(target, ServiceTargetShape) or target.via is not Frontend.DNS_NAME:
        return False
    service = subject.manifests.services.get(service_id(target.service, target.namespace))
    return service is not None and service.headless


def is_echo(subject: Subject) -> bool:
    """Whether the probe sends echo requests."""
    send = subject.probe.send
    return send is not None and send.protocol is Transport.ICMP
