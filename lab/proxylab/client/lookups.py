"""Names in a lab that stands: what is asked for a probe, for a program, or for whoever wants to know.

Owns: ``Lookups``: which questions are asked, from where, and what an answer leads to.
Must not: ask itself. How a question comes to the lab and its answer back is the caller's.
"""

from collections.abc import Callable

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Lookup
from proxylab.plan.assembly import Assembly
from proxylab.plan.resolved import Query, ResolvedProbe
from proxylab.scenario.model import Probe
from proxylab.verdict.naming import address_of, questions

__all__ = ["Lookups"]


class Lookups:
    """What can be asked in a lab.

    Args:
        assembly: of the lab.
        made: how many steps of its scenario have been made.
        ask: asks one question from inside a namespace.
    """

    def __init__(self, assembly: Assembly, made: int, ask: Callable[[str, Query], Lookup]) -> None:
        self._assembly = assembly
        self._made = made
        self._ask = ask

    def resolve(self, netns_name: str, name: str) -> tuple[Lookup, ...]:
        """What a program in a pod or node asks for a name, until it has an address.

        Raises:
            ScenarioError: there is no such place, or nobody to ask.
        """
        resolved, question = self._assembly.asking(netns_name, name, self._made)
        return tuple(questions(resolved, question, self._ask))

    def query(
        self,
        netns_name: str,
        name: str,
        kind: str,
        server: IPAddress | None = None,
        *,
        port: int | None = None,
        by_tcp: bool = False,
        size: int = 1232,
    ) -> Lookup:
        """Ask one question from a pod or node; of ``server``, or by way of the Service kube-dns.

        Raises:
            ScenarioError: there is no such place, or nobody to ask.
        """
        resolved, _ = self._assembly.asking(netns_name, name, self._made)
        sender, asked = resolved.sender, server or resolved.destination
        query = Query(
            name=name,
            kind=kind,
            server=asked,
            source=sender.address if asked.version == sender.address.version else None,
            port=port,
            by_tcp=by_tcp,
            size=size,
        )
        return self._ask(sender.namespace, query)

    def resolved(self, probe: Probe) -> tuple[ResolvedProbe, IPAddress | None, tuple[Lookup, ...]]:
        """The errand of a probe and the source that backends must see; with the questions that led to it, if any.

        Where a name leads nowhere the errand is to the name server, as the question was.
        """
        resolved, source = self._assembly.resolved(probe), self._assembly.expected_source(probe)
        if resolved.question is None:
            return resolved, source, ()
        lookups = tuple(questions(resolved, resolved.question, self._ask))
        address = address_of(resolved.question, lookups)
        if address is not None:
            resolved, source = self._assembly.answered(probe, address)
        return resolved, source, lookups
