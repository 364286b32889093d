"""Judges names: does the Service exist, does its name resolve to it, and does the lab's name server answer.

The name server answers no probes, so the stage of translation queries it through its own Service.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.kube_dns import DOMAIN, KUBE_DNS
from proxylab.cluster.objects import Service, ServiceType
from proxylab.evidence.lookups import Lookup
from proxylab.evidence.words import listed
from proxylab.features.diagnose.model import Finding, Stage, breaks, holds
from proxylab.features.diagnose.subject import DiagnosedService


def whole_name(service: Service) -> str:
    """The fully qualified name of a Service, with the final dot, so that a resolver tries no other."""
    return f"{service.name}.{service.namespace}.svc.{DOMAIN}."


def missing_service(namespace: str, name: str, services: Iterable[Service]) -> Finding:
    """The finding that there is no such Service, with the one that the user may mean."""
    known = list(services)
    elsewhere = [each.namespace for each in known if each.name == name]
    here = [each.name for each in known if each.namespace == namespace]
    close = get_close_matches(name, here, n=1)
    if elsewhere:
        meant = f"; there is one in {listed(elsewhere)}: write {elsewhere[0]}/{name}"
    elif close:
        meant = f"; did you mean {close[0]}?"
    else:
        meant = f"; there are {listed(here)}" if here else ""
    seen = f"no Service {namespace}/{name}"
    cause = f"there is no Service {name!r} in namespace {namespace}{meant}"
    return breaks(Stage.NAME, (seen,), cause if cause.endswith("?") else f"{cause}.", "get services")


def judge_name(subject: DiagnosedService, client: str, lookups: Sequence[Lookup] | None) -> Finding:
    """Judge whether the name resolves to the Service's addresses.

    ``client`` sent the queries; ``lookups`` is ``None`` where the lab has no name server.
    """
    service = subject.service
    if lookups is None:
        return holds(Stage.NAME, f"{_kind(service)} exists", "no name server runs in this lab (dns: true gives one)")
    name = whole_name(service).rstrip(".")
    failed = next((each for each in lookups if each.error), None)
    if failed is not None:
        past = [each for each in lookups if each.server != failed.server and not each.error]
        alive = "; queried past the Service, the name server answers" if past else ""
        cause = f"{client} cannot resolve {name}: {failed.server} did not answer ({failed.error}){alive}."
        return breaks(
            Stage.NAME,
            (f"{failed.server} did not answer for {name}",),
            cause,
            f"diagnose {KUBE_DNS.namespace}/{KUBE_DNS.name}" if service.key != KUBE_DNS else "get pods -o wide",
            f"exec {client} -- cat /etc/resolv.conf",
        )
    if service.type is ServiceType.EXTERNAL_NAME:
        return _judge_alias(service, name, lookups)
    expected = _expected(subject)
    found = list(dict.fromkeys(address for each in lookups for address in each.addresses))
    if set(found) != set(expected):
        addresses = listed([str(each) for each in found]) if found else "no address"
        seen = f"{name} resolves to {addresses}"
        cause = f"{seen}, but the Service has {listed([str(each) for each in expected])}."
        return breaks(Stage.NAME, (seen,), cause, f"get endpoints {service.name}", f"shell {client}")
    addresses = listed([str(each) for each in found]) if found else "no address, as no endpoint is ready"
    return holds(Stage.NAME, f"{name} resolves to {addresses} on {client}")


def _judge_alias(service: Service, name: str, lookups: Sequence[Lookup]) -> Finding:
    aliases = list(dict.fromkeys(each.value for found in lookups for each in found.answers if each.kind == "CNAME"))
    if service.external_name.rstrip(".") in aliases:
        return holds(Stage.NAME, f"{name} is an alias of {service.external_name}")
    seen = f"{name} is an alias of {listed(aliases)}" if aliases else f"{name} has no CNAME record"
    cause = f"{seen}; it must be an alias of {service.external_name}."
    return breaks(Stage.NAME, (seen,), cause, f"describe service {service.name}")


def _expected(subject: DiagnosedService) -> list[IPAddress]:
    """The addresses that the name must resolve to; those of a headless Service are its ready endpoints'."""
    if not subject.service.headless:
        return [each for each in subject.service.cluster_ips if Family.of(each) in subject.families]
    slices = (each for each in subject.slices if each.address_type in subject.families)
    return [each.addresses[0] for found in slices for each in found.endpoints if each.ready]


def _kind(service: Service) -> str:
    if service.headless:
        return "headless Service"
    address = f" {service.cluster_ips[0]}" if service.cluster_ips else ""
    return f"{service.type} Service{address}"


def judge_name_server(subject: DiagnosedService, lookups: Sequence[tuple[str, Lookup]]) -> Finding:
    """Judge whether the name server answers queries to its Service.

    Each look-up has the name of the pod, node or host that sent the query.
    """
    for netns_name, lookup in lookups:
        if lookup.error:
            frontend = subject.service.cluster_ips[0]
            cause = f"{netns_name} queried {frontend} by UDP, but no name server answered ({lookup.error})."
            target = f"{subject.service.namespace}/{subject.service.name}:dns"
            return breaks(Stage.DNAT, (f"{netns_name} got no answer",), cause, f"trace {netns_name} {target}")
    served = dict.fromkeys(lookup.served_by for _, lookup in lookups if lookup.served_by)
    senders = listed([netns_name for netns_name, _ in lookups])
    return holds(Stage.DNAT, f"{listed(list(served))} answered {senders}")
