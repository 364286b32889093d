"""Where flows may arrive, as the judge sees it: at a reachable endpoint, or where the author says.

An author may name a backend that is no reachable endpoint: conntrack or a proxy that has stopped may still lead there.
At such a pod each endpoint of the Service will do; where the Service has none there any more, each address and port.
An author may also dial a node's own address and expect its daemon there, at the node port of a Service without
endpoints: no mode serves node ports at every address. Where it has endpoints, the plan says at which addresses nothing
need serve them (``or_dialled``).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Observation
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.expect import Expect
from proxylab.scenario.probes import AddressTarget, Target
from proxylab.scenario.words import Outcome

End = tuple[IPAddress, int]


class ExpectedEnds:
    """The addresses and ports at which the flows of a probe may arrive."""

    def __init__(self, resolved: ResolvedProbe, expect: Expect, target: Target) -> None:
        self._resolved = resolved
        self.reachable: Sequence[End] = [(each.address, each.port) for each in resolved.endpoints if each.is_reachable]
        names_address = isinstance(target, AddressTarget) and expect.outcome is Outcome.DELIVERED
        self.is_what_was_dialled = not resolved.service_port
        if not self.reachable and names_address and not expect.backend_names:
            self.is_what_was_dialled = True
            self.reachable = [(resolved.destination, resolved.port)]
        elif resolved.or_dialled:
            self.reachable = [*self.reachable, (resolved.destination, resolved.port)]
        self._reachable = frozenset(self.reachable)
        self._of_named = self._named(resolved, expect)

    @property
    def is_known(self) -> bool:
        """Whether anything says where the flows may arrive."""
        return bool(self._resolved.service_port or self._resolved.endpoints)

    def __contains__(self, arrival: object) -> bool:
        """Whether a flow may arrive there; ``arrival`` is an ``Observation`` at a pod."""
        if not isinstance(arrival, Observation):
            return False
        end = (arrival.destination, arrival.destination_port)
        if not self.is_known or end in self._reachable:
            return True
        own = self._of_named.get(arrival.netns_name)
        return own is not None and (not own or end in own)

    def instead_of(self, address: IPAddress) -> Sequence[End]:
        """The ends at which a flow that came to this address may arrive: those there, or else all."""
        return [end for end in self.reachable if end[0] == address] or self.reachable

    def is_unready(self, end: End) -> bool:
        """Whether the Service has an endpoint there that flows must not reach."""
        return any((each.address, each.port) == end for each in self._resolved.endpoints)

    @staticmethod
    def _named(resolved: ResolvedProbe, expect: Expect) -> Mapping[str, frozenset[End]]:
        """The endpoints of each pod that the author names, of a Service."""
        if not resolved.service_port:
            return {}
        addresses = defaultdict[str, set[IPAddress]](set)
        for each in resolved.receivers:
            addresses[each.name].add(each.address)
        return {
            name: frozenset((each.address, each.port) for each in resolved.endpoints if each.address in addresses[name])
            for name in expect.backend_names
        }
