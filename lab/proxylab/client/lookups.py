"""Names in a lab that stands: what is asked for a probe, for a program, or for whoever wants to know.

Owns: ``Lookups``: which questions are asked, from where, and what an answer leads to.
Must not: ask itself. How a question comes to the lab and its answer back is the caller's.
"""

from collections.abc import Callable

from proxylab.plan.assembly import Assembly
from proxylab.addresses import IPAddress
from proxylab.plan.resolved import Errand, Query
from proxylab.scenario.model import Probe
from proxylab.evidence.evidence import Lookup
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

    def resolve(self, place: str, name: str) -> tuple[Lookup, ...]:
        """What a program in a pod or node asks for a name, until it has an address.

        Raises:
            ScenarioError: there is no such place, or nobody to ask.
        """
        errand, question = self._assembly.asking(place, name, self._made)
        return tuple(questions(errand, question, self._ask))

    def query(
        self,
        place: str,
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
        errand, _ = self._assembly.asking(place, name, self._made)
        sender, asked = errand.sender, server or errand.destination
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

    def errand(self, probe: Probe) -> tuple[Errand, IPAddress | None, tuple[Lookup, ...]]:
        """The errand of a probe and the source that backends must see; with the questions that led to it, if any.

        Where a name leads nowhere the errand is to the name server, as the question was.
        """
        errand, source = self._assembly.errand(probe), self._assembly.expected_source(probe)
        if errand.question is None:
            return errand, source, ()
        lookups = tuple(questions(errand, errand.question, self._ask))
        address = address_of(errand.question, lookups)
        if address is not None:
            errand, source = self._assembly.answered(probe, address)
        return errand, source, lookups
