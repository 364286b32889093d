"""What a reproduction asks for before it dials, as the part of its document that ``programs/names.py`` reads.

Owns: the shape of that part, and what the name servers of a script say.
Must not: judge.

What a server says is what the servers of the lab were heard to say. Of a question that nobody was heard to answer that
is not known: there a server gives what the name must give, so that a script whose rules are mended shows it.
"""

from collections.abc import Iterator
from typing import Any, Final

from lab.ip import Family, IPAddress
from lab.plan.errand import Question
from lab.plan.model import Plan
from lab.verdict.evidence import Lookup
from lab.verdict.model import ProbeVerdict
from lab.verdict.naming import KINDS, due_addresses

__all__ = ["homes_of_names", "name_case"]

_SAID: Final = frozenset({"A", "AAAA", "CNAME"})
"""Kinds of record that an answer to a question for addresses has."""


def homes_of_names(question: Question, plan: Plan) -> frozenset[str]:
    """The namespaces of the name servers."""
    return frozenset(each["namespace"] for each in _servers(question, plan))


def name_case(verdict: ProbeVerdict, plan: Plan) -> dict[str, Any] | None:
    """The part of the document; ``None`` where no name is dialled. ``plan`` is what is rebuilt."""
    errand, question, lookups = verdict.errand, verdict.errand.question, verdict.evidence.lookups
    if question is None or not question.resolvers:
        return None
    due = due_addresses(verdict.probe, question)
    server = next((each.server for each in lookups if each.server in question.resolvers), question.resolvers[0])
    return {
        "sender": errand.sender.name,
        "namespace": errand.sender.namespace,
        "address": str(errand.sender.address),
        "server": str(server),
        "names": list(question.names),
        "kinds": [KINDS[family] for family in question.families],
        "servers": list(_servers(question, plan)),
        "said": [*map(_said, (each for each in lookups if not each.error)), *_supposed(question, lookups, due)],
        "due": None if due is None else list(map(str, due)),
        "wanted": str(question.wanted) if question.wanted else "",
    }


def _servers(question: Question, plan: Plan) -> Iterator[dict[str, Any]]:
    for namespace in plan.namespaces:
        for each in namespace.listeners:
            for server in question.servers:
                if each.serves_names and each.name == server.name and each.address in (None, server.address):
                    yield {
                        "namespace": namespace.name,
                        "address": str(server.address),
                        "port": each.port,
                        "protocol": str(each.protocol),
                    }


def _said(lookup: Lookup) -> dict[str, Any]:
    answers = [[each.name, each.kind, each.value] for each in lookup.answers if each.kind in _SAID]
    return {"name": lookup.name, "kind": lookup.kind, "code": lookup.code, "answers": answers}


def _supposed(question: Question, lookups: tuple[Lookup, ...], due: tuple[IPAddress, ...] | None) -> Iterator[Any]:
    """What a server would have said to the question that nobody answered."""
    known = {(each.name, each.kind) for each in lookups if not each.error}
    for lookup in lookups:
        if lookup.error and (lookup.name, lookup.kind) not in known:
            name = lookup.name
            for family in question.families:
                answers = [[name, KINDS[family], str(each)] for each in due or () if Family.of(each) is family]
                if KINDS[family] not in {kind for asked, kind in known if asked == name}:
                    yield {"name": name, "kind": KINDS[family], "code": "NOERROR", "answers": answers}
            return
