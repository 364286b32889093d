"""``name``, which needs no key: a dialled DNS name gives the addresses that it must give. It needs the DNS queries.

A name fails where it does not exist, where it has no address, where the socket reports an error, and where the answer
is wrong: it must give the cluster IPs of the Service, or exactly the ready endpoints of a headless one (the backends
that the author names). It also fails where an answer comes from another server than those behind the Service, as NSID
shows (RFC 5001; an author's program or Corefile may give none), where an answer with an error has records, and where a
record has another owner than the name or its aliases.
Silence is a failure only where the name server itself, asked at once past the Service, answers the same query.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from proxylab.addresses import IPAddress
from proxylab.evidence.lookups import Lookup, NamedRecord
from proxylab.evidence.words import listed
from proxylab.plan.resolved import Question
from proxylab.verdict.case import Case
from proxylab.verdict.dns import expected_addresses, found_addresses
from proxylab.verdict.findings import Expectation, Findings, Needs
from proxylab.verdict.model import Verdict


def _judge(case: Case, question: Question) -> Verdict:
    """The name gives the addresses that it must give."""
    lookups = case.evidence.lookups
    asked = [each for each in lookups if each.server in question.resolvers]
    failed = next((each for each in asked if each.error), None)
    findings = Findings(case)
    if not asked:
        findings.doubt(f"no name server was asked for {question.names[0]}")
    elif failed is not None and failed.error == "timeout":
        _judge_silence(question, failed, lookups, findings)
    elif failed is not None:
        findings.wrong(f"asking {failed.server} for {_spelled(failed)} failed: {_error(failed.error)}")
    elif strange := [clause for each in asked for clause in _strange(question, each)]:
        for clause in strange:
            findings.wrong(clause)
    elif not found_addresses(question, asked):
        findings.wrong(_nothing(asked))
    else:
        for clause in _strangers(case, question, found_addresses(question, asked)):
            findings.wrong(clause)
    return findings.settle(
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
        findings.wrong(f"{silent}; {listed(alive)}, asked past the Service, did")
    else:
        others = [_server(question, each.server) for each in past]
        either = f"{listed(others, 'or')}, asked past the Service, did not" if others else "no server was asked past it"
        findings.doubt(f"{silent}, and {either}, so silence proves nothing")


def _strange(question: Question, answer: Lookup) -> Iterator[str]:
    """How an answer does not answer the question, or does not come from the Service."""
    server = f"{answer.server} answered {_spelled(answer)}"
    is_named = bool(answer.served_by) or not question.unnamed
    if question.answering and is_named and answer.served_by not in question.answering:
        by = answer.served_by or "a program without a name (NSID)"
        yield f"{by} answered {_spelled(answer)} in place of {listed(list(question.answering), 'or')}"
    if answer.code != "NOERROR" and answer.answers:
        yield f"{server} with {answer.code} and {listed([_record(each) for each in answer.answers])}"
    for each in answer.answers:
        if each.name.lower() not in answer.owners:
            yield f"{server} with {_record(each)}, which is another name"


def _record(record: NamedRecord) -> str:
    return f"{record.name} {record.kind} {record.value}"


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
    expected = expected_addresses(case.probe, question)
    if expected is not None:
        if missing := [each for each in expected if each not in found]:
            yield f"the name does not give {listed([_called(question, each) for each in missing])}"
        if strangers := [each for each in found if each not in expected]:
            wrong = f"not of Service {question.service}" if not question.headless else "not an expected backend"
            yield f"the name gives {listed([_called(question, each) for each in strangers])}, {wrong}"
    if question.address is not None and question.address not in found:
        yield f"the name does not give {question.address}, which the probe must dial"


def _expected(case: Case, question: Question) -> str:
    backends = case.expect.backend_names
    if question.headless and backends:
        return listed(list(backends))
    expected = expected_addresses(case.probe, question)
    return listed(list(map(str, expected))) if expected else "an address"


def _observed(question: Question, asked: Sequence[Lookup]) -> str:
    found = found_addresses(question, asked)
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


NAME = Expectation[Case, Question](
    key="name", expected=attrgetter("resolved.question"), judge=_judge, needs=Needs.NOTHING
)
