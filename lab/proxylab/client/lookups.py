"""DNS look-ups in a standing lab, for a probe, for a program in it, or for the user.

``Lookups`` chooses the queries and the sender, and follows the answers. The caller sends them.
"""

from collections.abc import Callable

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.evidence.lookups import Lookup
from proxylab.plan.assembly import Assembly
from proxylab.plan.resolved import Query, ResolvedProbe
from proxylab.scenario.probes import Probe
from proxylab.verdict.dns import address_of, questions


class DialledProbe(Struct, frozen=True):
    """A probe that is about to be sent.

    Attributes:
        resolved: the probe, resolved. It goes to the name server, as its query did, where a name has no address.
        source: that backends must see.
        lookups: of the name that it dials; none of a probe that dials an address.
    """

    resolved: ResolvedProbe
    source: IPAddress | None
    lookups: tuple[Lookup, ...] = ()


class Lookups:
    """DNS look-ups in one lab.

    ``made`` is how many steps of the scenario have been made; ``ask`` sends one query from a namespace.
    """

    def __init__(self, assembly: Assembly, made: int, ask: Callable[[str, Query], Lookup]) -> None:
        self._assembly = assembly
        self._made = made
        self._ask = ask

    def resolve(self, netns_name: str, name: str) -> tuple[Lookup, ...]:
        """The queries of a program in a pod or node that resolves a name, until one yields an address.

        Raises:
            ScenarioError: there is no such pod or node, or no name server.
        """
        resolved, question = self._assembly.lookup(netns_name, name, self._made)
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
        """Send one query from a pod or node, to ``server`` or through the Service kube-dns.

        Raises:
            ScenarioError: there is no such pod or node, or no name server.
        """
        resolved, _ = self._assembly.lookup(netns_name, name, self._made)
        sender, server_address = resolved.sender, server or resolved.destination
        query = Query(
            name=name,
            kind=kind,
            server=server_address,
            source=sender.address if server_address.version == sender.address.version else None,
            port=port,
            by_tcp=by_tcp,
            size=size,
        )
        return self._ask(sender.namespace, query)

    def resolved(self, probe: Probe) -> DialledProbe:
        """The probe, with the address of the name that it dials, if any."""
        resolved, source = self._assembly.resolved(probe), self._assembly.expected_source(probe)
        if resolved.question is None:
            return DialledProbe(resolved, source)
        lookups = tuple(questions(resolved, resolved.question, self._ask))
        address = address_of(resolved.question, lookups)
        if address is not None:
            resolved, source = self._assembly.with_address(probe, address)
        return DialledProbe(resolved, source, lookups)
