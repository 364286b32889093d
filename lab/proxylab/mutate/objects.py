"""The mutants of a cluster's objects and of a proxy's configuration.

Owns ``ObjectMutation``, the list of those that a cluster has, and what each makes of an object. A setting of a Service
counts for all its ports, families and addresses. To show it to a proxy for one of them only, a mutant takes that one
out of the Service and into a second one, with endpoints of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import fields, replace

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import EndpointSlice, KubeObject, Node, ObjectKey, Service, ServiceCIDR
from proxylab.cluster.store import EventType
from proxylab.encoding import Record
from proxylab.errors import InternalError
from proxylab.mutate.fields import FieldChange, changes, key_of

KINDS: Final = (Service, EndpointSlice, Node, ServiceCIDR)
"""The kinds of objects that a proxy reads."""
CONFIGURATION: Final = "KubeProxyConfiguration"
ABSENT: Final = "absent"
WITHHELD: Final = "withheld"
LATE: Final = "late"
EVENTS: Final = "later events of "
"""With what ``ObjectMutation.where`` begins for later events."""

_IN_PARTS: Final = ("internal_traffic_policy", "external_traffic_policy", "source_ranges", "affinity_timeout")
"""The settings of a Service that count for all its parts."""
_ADDRESSES: Final[Mapping[Family, IPAddress]] = {
    Family.IPV4: ip_address("192.0.0.10"),
    Family.IPV6: ip_address("100::a"),
}
"""Cluster IPs of a part without one; without them a proxy would ignore it. Reserved, as those of the lab's barrier."""
_PART: Final = "part"
_OF: Final = " of the "
_IN_SECONDS: Final = (".affinityTimeout", ".udpIdleTimeout", ".ipvs.tcp", ".ipvs.tcpFin", ".ipvs.udp")
"""How long a proxy remembers a client or a connection."""
_HALF: Final = "half as long"


class ObjectMutation(Record, frozen=True):
    """One change to a field of all objects of a kind, or to all their later events.

    Attributes:
        where: the field, such as ``Service.ports[last].nodePort``; for events, whose.
        change: in words.
    """

    where: str
    change: str

    @property
    def key(self) -> str:
        """By which a case knows whether it has the mutant."""
        return f"{self.where}: {self.change}"

    @property
    def is_of_events(self) -> bool:
        """Whether it changes no object, but hides events."""
        return self.where.startswith(EVENTS)

    def hides(self, event: EventType, thing: KubeObject) -> bool:
        """Whether it hides such an event of an object, for good or for a while."""
        kind, change = self.where.removeprefix(EVENTS), self.change.partition(" ")[0]
        return self.is_of_events and (kind, change) == (type(thing).__name__, event)

    @property
    def only_delays(self) -> bool:
        """Whether what it hides comes with the next step."""
        return self.change.endswith(LATE)


def mutations_of(
    timeline: Sequence[Sequence[KubeObject]], configuration: ProxyConfiguration
) -> dict[ObjectMutation, str]:
    """The mutations that change something of a cluster, at its beginning or later; each with an object as example."""
    found: dict[ObjectMutation, str] = {}
    for mutation, _ in _of_configuration(configuration):
        found.setdefault(mutation, CONFIGURATION)
    for objects in timeline:
        for thing in objects:
            for mutation, _ in _of_object(thing):
                found.setdefault(mutation, str(thing.key))
    for before, after in pairwise(timeline):
        for event, key in _events(before, after):
            for fate in (WITHHELD, LATE):
                found.setdefault(ObjectMutation(f"{EVENTS}{key.kind}", f"{event} {fate}"), str(key))
    return found


def _events(before: Sequence[KubeObject], after: Sequence[KubeObject]) -> Iterator[tuple[EventType, ObjectKey]]:
    old, new = ({each.key: each for each in objects if isinstance(each, KINDS)} for objects in (before, after))
    for key in old | new:
        if key not in old:
            yield EventType.ADDED, key
        elif key not in new:
            yield EventType.DELETED, key
        elif old[key] != new[key]:
            yield EventType.MODIFIED, key


def images(thing: KubeObject, mutation: ObjectMutation, *, altered: bool = True) -> tuple[KubeObject, ...]:
    """What proxies are shown in place of an object: itself, another, several or none.

    Without ``altered``, a Service is in the same parts, and all of them have its true settings.
    """
    if _OF not in mutation.where:
        return next((shown for found, shown in _of_object(thing) if altered and found == mutation), (thing,))
    if isinstance(thing, EndpointSlice):
        return thing, replace(thing, name=f"{thing.name}-{_PART}", service=f"{thing.service}-{_PART}")
    if isinstance(thing, Service):
        for part, mutant in _of_parts(thing):
            if mutant.mutation == mutation:
                return part.rest, mutant.made if altered else part.alone
    return (thing,)


def mutated_configuration(configuration: ProxyConfiguration, mutation: ObjectMutation) -> ProxyConfiguration:
    """The configuration that proxies get.

    Raises:
        InternalError: the mutation is of a configuration, and not of this one: nothing could notice it.
    """
    if not mutation.where.startswith(CONFIGURATION):
        return configuration
    made = next((made for found, made in _of_configuration(configuration) if found == mutation), None)
    if made is None:
        raise InternalError(f"the mutation {mutation.key!r} changes nothing in {configuration}")
    return made


def _of_configuration(configuration: ProxyConfiguration) -> Iterator[tuple[ObjectMutation, ProxyConfiguration]]:
    for path, change, made in _changes(configuration):
        if isinstance(made, ProxyConfiguration):
            yield ObjectMutation(f"{CONFIGURATION}{path}", change), made


def _of_object(thing: KubeObject) -> Iterator[tuple[ObjectMutation, tuple[KubeObject, ...]]]:
    if not isinstance(thing, KINDS):
        return
    kind = type(thing).__name__
    yield ObjectMutation(kind, ABSENT), ()
    for path, change, made in _changes(thing):
        if isinstance(made, KINDS):
            yield ObjectMutation(f"{kind}{path}", change), (made,)
    if isinstance(thing, Service):
        yield from ((mutant.mutation, (part.rest, mutant.made)) for part, mutant in _of_parts(thing))


def _changes(thing: KubeObject | ProxyConfiguration) -> Iterator[FieldChange]:
    """As ``changes``, but that a proxy remembers its clients half or ten times as long instead of a second longer.

    No lab tells a second apart: a busy machine takes as long from one packet of a client to the next.
    """
    for each in changes(thing):
        if each.path in _IN_SECONDS and each.change == "one more":
            yield FieldChange(each.path, "ten times as long", _ten_times(thing, each.path))
            if isinstance(thing, Service) and (seconds := thing.affinity_timeout) and seconds > 1:
                yield FieldChange(each.path, _HALF, replace(thing, affinity_timeout=seconds // 2))
        else:
            yield each


def _ten_times(record: Struct, path: str) -> Struct:
    """The record with ten times the number at a path, which leads through records alone."""
    key, _, rest = path.removeprefix(".").partition(".")
    (name,) = (each.name for each in fields(record) if key_of(each.name) == key)
    value = getattr(record, name)
    return replace(record, **{name: _ten_times(value, f".{rest}") if rest else 10 * value})


class _Part(Struct, frozen=True):
    """One of several things of a Service: the word for it, the Service without it, and a Service with nothing else."""

    word: str
    rest: Service
    alone: Service


class _MutantOfPart(Struct, frozen=True):
    """The Service with nothing but a part, with another setting."""

    mutation: ObjectMutation
    made: Service


def _of_parts(service: Service) -> Iterator[tuple[_Part, _MutantOfPart]]:
    """The mutants of each part."""
    for part in _parts(service):
        for path, change, made in _changes(part.alone):
            # That a part forgets as soon as the whole does, the mutant of the whole shows.
            if (
                change != _HALF
                and isinstance(made, Service)
                and any(getattr(made, each) != getattr(part.alone, each) for each in _IN_PARTS)
            ):
                yield part, _MutantOfPart(ObjectMutation(f"Service{path}{_OF}{part.word}", change), made)


def _parts(service: Service) -> Iterator[_Part]:
    """What a Service has several of: the last of each, which a mutant tells from the others."""
    alone = replace(service, name=f"{service.name}-{_PART}", health_check_node_port=0)
    if len(service.ports) > 1:
        rest = replace(service, ports=service.ports[:-1])
        yield _Part("last port", rest, replace(alone, ports=service.ports[-1:]))
    if len(service.cluster_ips) > 1:
        first, last = service.cluster_ips
        part = replace(alone, cluster_ips=(last,), source_ranges=_ranges_for(service, last))
        yield _Part("second family", replace(service, cluster_ips=(first,)), part)
    vips, externals = service.load_balancer_ingress, service.external_ips
    bare = replace(
        alone,
        cluster_ips=tuple(_ADDRESSES[Family.of(each)] for each in service.cluster_ips),
        ports=tuple(replace(each, node_port=0) for each in service.ports),
        external_ips=(),
        load_balancer_ingress=(),
    )
    if len(vips) > 1 and vips[-1].ip is not None:
        part = replace(bare, load_balancer_ingress=vips[-1:], source_ranges=_ranges_for(service, vips[-1].ip))
        yield _Part("last ingress address", replace(service, load_balancer_ingress=vips[:-1]), part)
    if len(externals) > 1:
        part = replace(bare, external_ips=externals[-1:])
        yield _Part("last external IP", replace(service, external_ips=externals[:-1]), part)
    if any(each.node_port for each in service.ports) and (vips or externals):
        rest = replace(service, ports=bare.ports)
        yield _Part("node ports", rest, replace(bare, ports=service.ports))


def _ranges_for(service: Service, address: IPAddress) -> tuple[IPNetwork, ...]:
    """The source ranges that count for an address: those of its family."""
    return tuple(each for each in service.source_ranges if each.version == address.version)
