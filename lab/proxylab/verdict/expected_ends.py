"""Where flows may arrive, as the judge sees it: at a reachable endpoint, or where the author says.

An author may name a backend that is no reachable endpoint: conntrack or a proxy that has stopped may still lead there.
At such a pod each endpoint of the Service will do; where the Service has none there any more, each address and port.
An author may also dial a node's own address and expect its daemon there, at the node port of a Service without
endpoints: no mode serves node ports at every address. Where it has endpoints, the plan says at which addresses nothing
need serve them (``or_dialled``).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from proxylab.addresses import IPAddress
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.expect import Expect
from proxylab.scenario.probes import AddressTarget, Target
from proxylab.scenario.steps import StreamExpect
from proxylab.scenario.words import Outcome

End = tuple[IPAddress, int]


class ExpectedEnds:
    """The addresses and ports at which the flows of a probe may arrive, or the packets of a stream.

    Attributes:
        reachable: the ends themselves, without those of pods that the author names.
        is_known: whether anything says where they may arrive.
    """

    def __init__(
        self, resolved: ResolvedProbe, reachable: Sequence[End], named: Iterable[str], *, is_known: bool
    ) -> None:
        """``named`` are the pods that the author names."""
        self.reachable = reachable
        self.is_known = is_known
        self._resolved = resolved
        self._reachable = frozenset(reachable)
        self._of_named = self._own_endpoints(resolved, named)

    @classmethod
    def of_probe(cls, resolved: ResolvedProbe, expect: Expect, target: Target) -> "ExpectedEnds":
        """Where the flows of a probe may arrive at its one moment."""
        reachable = [(each.address, each.port) for each in resolved.endpoints if each.is_reachable]
        dialled = (resolved.destination, resolved.port)
        names_address = isinstance(target, AddressTarget) and expect.outcome is Outcome.DELIVERED
        if resolved.or_dialled or (not reachable and names_address and not expect.backend_names):
            reachable.append(dialled)
        is_known = bool(resolved.service_port or resolved.endpoints)
        return cls(resolved, reachable, expect.backend_names, is_known=is_known)

    @classmethod
    def of_stream(cls, resolved: ResolvedProbe, expect: StreamExpect) -> "ExpectedEnds":
        """Where the packets of a stream may arrive: at each endpoint that it has had, or where it was sent to."""
        ends = [(each.address, each.port) for each in resolved.endpoints]
        if not resolved.service_port and not ends:
            ends = [(resolved.destination, resolved.port)]
        return cls(resolved, ends, expect.backend_names, is_known=True)

    def allow(self, name: str, end: End) -> bool:
        """Whether a packet may arrive there, at the pod of that name."""
        if not self.is_known or end in self._reachable:
            return True
        own = self._of_named.get(name)
        return own is not None and (not own or end in own)

    def instead_of(self, address: IPAddress) -> Sequence[End]:
        """The ends at which a flow that came to this address may arrive: those there, or else all."""
        return [end for end in self.reachable if end[0] == address] or self.reachable

    def is_unready(self, end: End) -> bool:
        """Whether the Service has an endpoint there, and none that new flows may reach."""
        found = [each.is_reachable for each in self._resolved.endpoints if (each.address, each.port) == end]
        return bool(found) and not any(found)

    @staticmethod
    def _own_endpoints(resolved: ResolvedProbe, named: Iterable[str]) -> Mapping[str, frozenset[End]]:
        """The endpoints of each pod that the author names, of a Service."""
        if not resolved.service_port:
            return {}
        addresses = defaultdict[str, set[IPAddress]](set)
        for each in resolved.receivers:
            addresses[each.name].add(each.address)
        return {
            name: frozenset((each.address, each.port) for each in resolved.endpoints if each.address in addresses[name])
            for name in named
        }
