"""DNS names that probes dial: the queries, the address that an answer gives, and the verdict ``name``.

A name fails where it does not exist, where it has no address, where the socket reports an error, and where the answer
is wrong: it must give the cluster IPs of the Service, or exactly the pods of a headless one. Silence is a failure only
where the name server itself, asked at once past the Service, answers the same query.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.evidence.evidence import Lookup
from proxylab.evidence.words import listed
from proxylab.plan.resolved import Query, Question, ResolvedProbe
from proxylab.scenario.model import Probe
from proxylab.verdict.case import Case, Findings
from proxylab.verdict.model import Verdict

__all__ = ["KINDS", "address_of", "due_addresses", "has_no_address", "judge_name", "not_dialled", "questions"]

KINDS: Final = {Family.IPV4: "A", Family.IPV6: "AAAA"}
"""The type of record with addresses of a family."""


def address_of(question: Question, lookups: Iterable[Lookup]) -> IPAddress | None:
    """The address that a client dials: the first one of the first family with an answer, or the one that it wants.

    A pod behind the name dials another pod, if there is one.
    """
    found = _found(question, lookups)
    if question.wanted is not None:
        return question.wanted if question.wanted in found else None
    ordered = [each for family in question.families for each in found if Family.of(each) is family]
    return next(iter(sorted(ordered, key=lambda address: address in question.own)), None)


def has_no_address(resolved: ResolvedProbe, lookups: Iterable[Lookup]) -> bool:
    """Whether the probe dials a name and the answers give no address."""
    return resolved.question is not None and address_of(resolved.question, lookups) is None


def questions(resolved: ResolvedProbe, question: Question, ask: Callable[[str, Query], Lookup]) -> Iterator[Lookup]:
    """The queries of a resolver until it has an address, in the order of its search domains.

    Without an answer it asks the servers past the Service, and then stops.

    Args:
        resolved: of the probe that dials the name.
        question: its own.
        ask: sends one query from inside a namespace.
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


def not_dialled(case: Case, expectation: str) -> Verdict:
    """The verdict on an expectation about packets, where the probe sent none."""
    doubts = ["the probe dialled nothing, since the name gave no address"]
    return Findings(doubts_overall=doubts).settle(case, expectation, expected="", observed="nothing dialled")


def judge_name(case: Case, question: Question) -> Verdict:
    """The name gives the addresses that it must give."""
    lookups = case.evidence.lookups
    asked = [each for each in lookups if each.server in question.resolvers]
    failed = next((each for each in asked if each.error), None)
    findings = Findings()
    if not asked:
        findings.doubts_overall.append(f"no name server was asked for {question.names[0]}")
    elif failed is not None and failed.error == "timeout":
        _judge_silence(question, failed, lookups, findings)
    elif failed is not None:
        findings.wrong_overall.append(f"asking {failed.server} for {_spelled(failed)} failed: {_error(failed.error)}")
    elif not _found(question, asked):
        findings.wrong_overall.append(_nothing(asked))
    else:
        findings.wrong_overall += _strangers(case, question, _found(question, asked))
    return findings.settle(
        case,
        "name",
        expected=_expected(case, question),
        observed=_observed(question, asked),
        witnesses=[_answered(each) for each in asked if each.addresses],
    )


def _judge_silence(question: Question, failed: Lookup, lookups: Sequence[Lookup], findings: Findings) -> None:
    past = [each for each in lookups if each.server not in question.resolvers]
    alive = [_server(question, each.server) for each in past if not each.error]
    silent = f"{failed.server} did not answer for {_spelled(failed)}"
    if alive:
        findings.wrong_overall.append(f"{silent}; {listed(alive)}, asked past the Service, did")
    else:
        others = [_server(question, each.server) for each in past]
        either = f"{listed(others, 'or')}, asked past the Service, did not" if others else "no server was asked past it"
        findings.doubts_overall.append(f"{silent}, and {either}, so silence proves nothing")


def _nothing(asked: Sequence[Lookup]) -> str:
    """What the name lacks; a name without records is more informative than names that do not exist."""
    informative = next((each for each in asked if each.code != "NXDOMAIN"), asked[0])
    if informative.code == "NXDOMAIN":
        return f"{informative.name} does not exist: {informative.server} answered NXDOMAIN"
    if informative.code == "NOERROR":
        kinds = listed(list(dict.fromkeys(each.kind for each in asked if each.name == informative.name)), "or")
        return f"{informative.name} has no address: {informative.server} answered without a record of type {kinds}"
    return f"{informative.server} answered {informative.code} for {_spelled(informative)}"


def _strangers(case: Case, question: Question, found: Sequence[IPAddress]) -> Iterator[str]:
    """How the answer is wrong."""
    due = due_addresses(case.probe, question)
    if due is not None:
        if missing := [each for each in due if each not in found]:
            yield f"the name does not give {listed([_called(question, each) for each in missing])}"
        if strangers := [each for each in found if each not in due]:
            wrong = f"not of Service {question.service}" if not question.headless else "not an expected backend"
            yield f"the name gives {listed([_called(question, each) for each in strangers])}, {wrong}"
    if question.wanted is not None and question.wanted not in found:
        yield f"the name does not give {question.wanted}, which the probe must dial"


def due_addresses(probe: Probe, question: Question) -> tuple[IPAddress, ...] | None:
    """The addresses that the name must give, of the families asked for; ``None`` where any address is right."""
    backends = probe.expect.backends
    if question.headless and backends is not None:
        due = [address for name in backends for address in question.pods.get(name, ())]
    elif question.due:
        due = list(question.due)
    else:
        return None
    return tuple(each for each in due if Family.of(each) in question.families)


def _found(question: Question, lookups: Iterable[Lookup]) -> tuple[IPAddress, ...]:
    answers = (each for each in lookups if each.server in question.resolvers)
    return tuple(dict.fromkeys(address for each in answers for address in each.addresses))


def _expected(case: Case, question: Question) -> str:
    backends = case.probe.expect.backends
    if question.headless and backends is not None:
        return listed(list(backends))
    due = due_addresses(case.probe, question)
    return listed(list(map(str, due))) if due else "an address"


def _observed(question: Question, asked: Sequence[Lookup]) -> str:
    found = _found(question, asked)
    if found:
        return listed([_called(question, each) for each in found])
    codes = dict.fromkeys(each.error or (each.code if each.code != "NOERROR" else "empty answer") for each in asked)
    return listed(list(codes)) or "not asked"


def _called(question: Question, address: IPAddress) -> str:
    """The pod with an address, or else the address."""
    owner = next((name for name, own in question.pods.items() if address in own), None)
    return str(address) if owner is None else f"{owner} ({address})"


def _server(question: Question, address: IPAddress) -> str:
    return next((each.name for each in question.servers if each.address == address), str(address))


def _spelled(lookup: Lookup) -> str:
    return f"{lookup.name} {lookup.kind}"


def _answered(lookup: Lookup) -> str:
    by = f"{lookup.served_by} behind {lookup.server}" if lookup.served_by else str(lookup.server)
    return f"{by} answered {_spelled(lookup)}: {listed(list(map(str, lookup.addresses)))}"


def _error(error: str) -> str:
    return "the answer is malformed" if error == "malformed" else f"the socket reports {error}"
