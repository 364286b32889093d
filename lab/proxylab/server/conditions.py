"""Waits for the conditions of a step. ``StepConditions`` checks every condition of ``until`` and changes nothing."""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.control.balancers import BalancerRoutes
from proxylab.control.coredns import CoreDns
from proxylab.control.ingress.controller import IngressController
from proxylab.engines.fleet import Fleet
from proxylab.engines.modes import MODES
from proxylab.errors import EngineError, ProgramError
from proxylab.evidence.words import listed
from proxylab.plan.model import Plan
from proxylab.scenario.expect import ConntrackExpect
from proxylab.scenario.steps import EngineState, RulesState, Until
from proxylab.timing import Deadline, DeadlineExceededError, pass_by, together, wait_until, wait_until_seen
from proxylab.traffic.runner import Runner
from proxylab.verdict.conntrack_tables import is_met

_LAST_LINES: Final = 30
_Addresses = Mapping[str, tuple[IPAddress, ...]]


class StepConditions(Struct, frozen=True):
    """Waits for conditions in one lab."""

    fleet: Fleet
    plan: Plan
    families: tuple[Family, ...]
    runner: Runner
    balancer_routes: BalancerRoutes | None
    name_servers: CoreDns | None = None
    ingress: IngressController | None = None

    async def wait(self, step: str, revision: int, until: Until, addresses: _Addresses) -> None:
        """Return when all conditions hold. Engines in state synced must have programmed that revision of the store.

        Raises:
            EngineError: a condition did not hold in time.
        """
        # Most conditions wait for engines, so they may take as long as the engines themselves.
        deadline = Deadline.after(self.fleet.sync_seconds if until.within is None else until.within / 1000)
        synced = [node for node, state in until.engines.items() if state is EngineState.SYNCED]
        await self.fleet.wait_synced(revision, deadline, synced)
        await together(self._wait_for_rules(step, node, state, deadline) for node, state in until.rules.items())
        try:
            if until.conntrack is not None:
                await self._wait_for_tables(until.conntrack, addresses, deadline)
            for balancer, nodes in until.balancers.items():
                await self._wait_for_balancer(f"{until.position}: step {step!r}", balancer, nodes, deadline)
            for stream, backend in until.backends.items():
                await self._wait_for_backend(stream, backend, deadline)
        except DeadlineExceededError as late:
            raise EngineError(listed(tuple(self.fleet.engines)), f"step {step!r}: {late}") from late
        if until.elapsed is not None:
            await pass_by(until.elapsed / 1000)

    async def settle(self) -> None:
        """Return when balancers have followed the nodes' labels and health, and CoreDNS and nginx the cluster.

        Their delay is not the engines' fault. Raises ``ProgramError``.
        """
        if self.name_servers is not None:
            await self.name_servers.settle()
        if self.ingress is not None:
            await self.ingress.settle()
        if self.balancer_routes is not None:
            await self.balancer_routes.settle()

    async def _wait_for_rules(self, step: str, node: str, state: RulesState, deadline: Deadline) -> None:
        engine, mode = self.fleet.engines[node], MODES[self.fleet.mode(node)]

        async def look() -> bool:
            return mode.holds(await engine.dump(), state is RulesState.PRESENT)

        try:
            await wait_until_seen(look, deadline, f"the rules of the engine are {state} in its node's kernel")
        except DeadlineExceededError as late:
            last = "\n".join(engine.logs()[-_LAST_LINES:])
            raise EngineError(node, f"step {step!r}: {late}", last) from late

    async def _wait_for_tables(self, expected: ConntrackExpect, addresses: _Addresses, deadline: Deadline) -> None:
        nodes = tuple(self.fleet.engines) if expected.node is None else (expected.node,)

        def look() -> bool:
            tables = (self.runner.conntrack.tables(nodes, family) for family in self.families)
            return is_met(expected, [entry for table in tables for entry in table], addresses)

        await wait_until(look, deadline, f"connection tracking on {listed(nodes, 'or')} is as expected")

    async def _wait_for_balancer(self, where: str, name: str, nodes: tuple[str, ...], deadline: Deadline) -> None:
        balancer = next(each for each in self.plan.balancers if each.name == name)
        seen: list[frozenset[str]] = []

        async def look() -> bool:
            await self.settle()
            seen[:] = () if self.balancer_routes is None else self.balancer_routes.chosen(balancer)
            return all(each == frozenset(nodes) for each in seen)

        what = f"load balancer {name} sends to {_nodes(nodes)}, and to no other node"
        try:
            await wait_until_seen(look, deadline, what)
        except DeadlineExceededError as late:
            now = " and ".join(dict.fromkeys(_nodes(sorted(each)) for each in seen))
            raise ProgramError(where, f"{late}; it sends to {now}") from late

    async def _wait_for_backend(self, stream: str, backend: str, deadline: Deadline) -> None:
        def look() -> bool:
            return self.runner.streams.answering(stream) == backend

        await wait_until(look, deadline, f"{backend} answers {stream}")


def _nodes(names: Collection[str]) -> str:
    return listed(tuple(names)) if names else "no node"
