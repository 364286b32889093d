"""DNS names that probes dial: the queries, and the address that an answer gives."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.evidence.lookups import Lookup
from proxylab.plan.resolved import Query, Question, ResolvedProbe
from proxylab.scenario.probes import Probe

KINDS: Final = {Family.IPV4: "A", Family.IPV6: "AAAA"}
"""The type of record with addresses of a family."""


def address_of(question: Question, lookups: Iterable[Lookup]) -> IPAddress | None:
    """The address that a client dials: the first one of the first family with an answer, or the one that it must dial.

    A pod behind the name dials another pod, if there is one.
    """
    found = found_addresses(question, lookups)
    if question.address is not None:
        return question.address if question.address in found else None
    ordered = [each for family in question.families for each in found if Family.of(each) is family]
    return next(iter(sorted(ordered, key=lambda address: address in question.own)), None)


def has_no_address(resolved: ResolvedProbe, lookups: Iterable[Lookup]) -> bool:
    """Whether the probe dials a name and the answers give no address."""
    return resolved.question is not None and address_of(resolved.question, lookups) is None


def questions(resolved: ResolvedProbe, question: Question, ask: Callable[[str, Query], Lookup]) -> Iterator[Lookup]:
    """The queries of a resolver until it has an address, in the order of its search domains.

    Without an answer it asks the servers past the Service, and then stops. ``ask`` sends one query from inside a
    namespace.
    """
    netns_name, found = resolved.sender.namespace, False
    servers = [each.address for each in question.servers if each.address.version == resolved.destination.version]
    for name in question.names:
        for family in question.families:
            query = Query(name=name, kind=KINDS[family], server=resolved.destination, source=resolved.sender.address)
            lookup = ask(netns_name, query)
            yield lookup
            if lookup.error:
                yield from (ask(netns_name, replace(query, server=address)) for address in servers)
                return
            found = found or bool(lookup.addresses)
        if found:
            return


def expected_addresses(probe: Probe, question: Question) -> tuple[IPAddress, ...] | None:
    """The addresses that the name must give, of the families asked for; ``None`` where any address is right.

    Of a headless Service they are those of its ready endpoints, and of the backends that the author names.
    """
    expected = question.expected
    if question.headless and probe.expect.backend_names:
        own = [question.pods.get(name, ()) for name in probe.expect.backend_names]
        expected = tuple(each for of_one in own for each in (set(of_one) & {*(expected or ())} or of_one))
    return None if expected is None else tuple(each for each in expected if Family.of(each) in question.families)


def found_addresses(question: Question, lookups: Iterable[Lookup]) -> tuple[IPAddress, ...]:
    """The addresses in the answers of the servers that a resolver asks."""
    answers = (each for each in lookups if each.server in question.resolvers)
    return tuple(dict.fromkeys(address for each in answers for address in each.addresses))
