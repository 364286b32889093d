"""``ExpectedSources``: the addresses behind ``expect.source``, which follow from the network and each flow's way.

The judge compares addresses and knows no network, so the plan gives it the address of a node's device, and for
``masqueraded`` the source on every way that a flow may take.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import Service
from proxylab.errors import ScenarioError
from proxylab.plan.model import Plan
from proxylab.plan.resolved import MasqueradedAs, ResolvedProbe
from proxylab.plan.sources import masquerades, snat_source
from proxylab.scenario.expect import (
    Expect,
    Masqueraded,
    NodeDevice,
    Preserved,
    SourceAddress,
    SourceByBackend,
    SourceExpectation,
)
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step, StreamExpect

ANY_BACKEND = ""
"""In place of a backend's name: all backends see the same source."""


class ExpectedSources:
    """Finds the addresses behind ``expect.source`` of probes and streams, and collects what the network cannot give."""

    def __init__(self, plan: Plan, problems: list[str] | None = None) -> None:
        self._plan = plan
        self._problems: list[str] = [] if problems is None else problems

    def after_steps(self, plan: Plan) -> "ExpectedSources":
        """The same for the plan after some steps; it collects into the same list."""
        return ExpectedSources(plan, self._problems)

    def close(self) -> None:
        """Raises ScenarioError, with a line for each source that the network cannot give."""
        if self._problems:
            raise ScenarioError(self._problems)

    def of_probe(
        self, probe: Probe, resolved: ResolvedProbe, services: Iterable[Service]
    ) -> tuple[ResolvedProbe, IPAddress | None]:
        """The resolved probe with ``masquerades`` if its author asks for them, and the address of a fixed source.

        A node with several addresses may give each endpoint another one. Where the probe dials a name, its way is
        unknown until the name is resolved.
        """
        expectation, owner = probe.expect.source, f"probe {probe.name!r}"
        if _is_masqueraded(expectation) and resolved.question is None:
            backends = [each.address for each in resolved.endpoints]
            found = self._masquerades(probe.expect, owner, resolved, backends, services)
            return replace(resolved, masquerades=found), None
        fixed = self._fixed(probe.expect, owner, Family.of(resolved.destination))
        if isinstance(expectation, NodeDevice) and fixed is not None:
            ways = (
                MasqueradedAs(
                    node=expectation.node, backend=end, source=self._fixed(probe.expect, owner, Family.of(end), end)
                )
                for end in dict.fromkeys(each.address for each in resolved.endpoints)
            )
            resolved = replace(resolved, masquerades=tuple(ways))
        return resolved, fixed

    def of_stream(
        self, step: Step, name: str, resolved: ResolvedProbe, services: Iterable[Service]
    ) -> Mapping[str, IPAddress]:
        """The source that each backend of a stream must see, by its name or ``ANY_BACKEND``.

        A backend is absent where the author expects a masqueraded source and nothing masquerades.
        """
        expect, owner, own = step.expect.streams[name], f"step {step.name!r}: {name}", resolved.sender.address
        expectation, masqueraded = expect.source, dict[str, IPAddress]()
        if _is_masqueraded(expectation):
            names = {each.address: each.name for each in resolved.receivers}
            ways = self._masquerades(expect, owner, resolved, list(names), services)
            if len(nodes := dict.fromkeys(way.node for way in ways)) > 1:
                self._note(expect, owner, f"the stream may enter the cluster at {' or '.join(nodes)}: give an address")
            masqueraded = {names[way.backend]: way.source for way in ways if way.source is not None}
        match expectation:
            case None:
                return {}
            case Masqueraded():
                return masqueraded
            case SourceByBackend(of):
                fixed = {each: source.address for each, source in of.items() if isinstance(source, SourceAddress)}
                kept = {each: own for each, source in of.items() if isinstance(source, Preserved)}
                return (
                    kept | fixed | {each: masqueraded[each] for each in masqueraded if each in {*of} - {*kept, *fixed}}
                )
            case NodeDevice():
                ends = {each.name: each.address for each in resolved.receivers}
                found = {name: self._fixed(expect, owner, Family.of(end), end) for name, end in ends.items()}
                return {name: address for name, address in found.items() if address is not None}
            case _:
                return {ANY_BACKEND: self._fixed(expect, owner, Family.of(resolved.destination)) or own}

    def _masquerades(
        self,
        expect: Expect | StreamExpect,
        owner: str,
        resolved: ResolvedProbe,
        backends: Sequence[IPAddress],
        services: Iterable[Service],
    ) -> tuple[MasqueradedAs, ...]:
        services = tuple(services)
        node_ports = {port.node_port for service in services for port in service.ports if port.node_port}
        ingress = [each for service in services for each in service.load_balancer_ingress]
        left = {address for each in ingress if not each.is_claimed for address in each.addresses}
        try:
            return masquerades(self._plan, resolved, backends, node_ports, left_to_balancers=left)
        except LookupError as error:
            self._note(expect, owner, str(error))
            return ()

    def _fixed(
        self, expect: Expect | StreamExpect, owner: str, family: Family, backend: IPAddress | None = None
    ) -> IPAddress | None:
        """The address that a backend must see, or every one; ``None`` for the sender's own, or one that differs."""
        match expect.source:
            case SourceAddress(address):
                return address
            case NodeDevice(node, device):
                try:
                    return snat_source(self._plan, node, device, family, backend)
                except LookupError as error:
                    self._note(expect, owner, str(error))
        return None

    def _note(self, expect: Expect | StreamExpect, owner: str, what: str) -> None:
        self._problems.append(f"{expect.positions.get('source', expect.position)}: {owner}: expect.source: {what}")


def _is_masqueraded(expectation: SourceExpectation | None) -> bool:
    several = expectation.of.values() if isinstance(expectation, SourceByBackend) else (expectation,)
    return any(isinstance(each, Masqueraded) for each in several)
