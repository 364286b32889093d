"""A lab that stands: a plan made real, with its engines running.

Owns: the order wire, store, engines, synced, taps; and the way back.
Must not: judge, speak to the client, or know more than one lab.
"""

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, Self

from lab.cluster.store import Store
from lab.control.apiserver import ApiServer
from lab.engines.barrier import Barrier, without_barrier
from lab.engines.catalogue import make_engine
from lab.engines.ground import Ground
from lab.engines.protocol import Engine
from lab.errors import CapabilityError, InternalError
from lab.ip import Family
from lab.kernel.launcher import Completed, Launcher
from lab.kernel.leftovers import Departed, end_processes, note_departure
from lab.kernel.netns import NetNs
from lab.kernel.realise import Wiring, realise
from lab.kernel.requests import replace_route
from lab.kernel.rules import IptablesTool, IptablesVariant
from lab.kernel.xtables import TableReader
from lab.messages import Build, Stage
from lab.plan.errand import Detour, Errand
from lab.plan.model import Role, Route
from lab.timing import Deadline, together
from lab.traffic.meters import Meter, TableMeter, TextMeter
from lab.traffic.runner import Runner
from lab.verdict.evidence import Evidence

__all__ = ["Lab"]

_SYNC_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Lab:
    """Everything of one lab that the lab process holds. ``stages`` says how long each part of the build took."""

    number: int
    wiring: Wiring
    store: Store
    engines: dict[str, Engine]
    runner: Runner
    stages: tuple[Stage, ...]
    variant: IptablesVariant
    _launcher: Launcher
    _stack: AsyncExitStack

    @classmethod
    async def build(cls, number: int, request: Build, launcher: Launcher, variant: IptablesVariant) -> Self:
        """Make the plan real, start an engine in every node, and wait until all have programmed the objects.

        ``number`` tells this lab's places from those of any other lab that the launcher knows.

        Raises:
            CapabilityError: the machine lacks something that the plan or the engine needs.
            EngineError: an engine did not start, or did not synchronise in time.
        """
        stages = [_Mark("start", time.monotonic())]
        async with AsyncExitStack() as stack:
            wiring = stack.enter_context(realise(request.plan))
            stack.callback(launcher.forget, [f"{number}/{name}" for name in wiring.namespaces])
            stages.append(_Mark("wire", time.monotonic()))
            store = Store()
            tools = {
                namespace.name: IptablesTool(
                    launcher, wiring.namespaces[namespace.name], f"{number}/{namespace.name}", variant
                )
                for namespace in request.plan.namespaces
                if namespace.role is Role.NODE
            }
            api = ApiServer(store)
            stack.push_async_callback(api.close)
            barrier = Barrier(store, request.engine.families)
            grounds = {
                name: Ground(
                    node=name,
                    netns=wiring.namespaces[name],
                    launcher=launcher,
                    place=f"{number}/{name}",
                    tool=tool,
                    store=store,
                    api=api,
                    barrier=barrier,
                )
                for name, tool in tools.items()
            }
            engines = {name: make_engine(request.engine, ground) for name, ground in grounds.items()}
            revision = max((store.apply(thing) for thing in request.objects), default=0)
            deadline = Deadline.after(_SYNC_SECONDS)
            for engine in engines.values():
                stack.push_async_callback(engine.stop)
            await together(engine.start() for engine in engines.values())
            await together(engine.wait_synced(revision, deadline) for engine in engines.values())
            stages.append(_Mark("synchronise", time.monotonic()))

            meters = {
                (name, family): _meter(wiring.namespaces[name], tool, variant, family)
                for name, tool in tools.items()
                for family in request.engine.families
            }
            runner = Runner(wiring.namespaces, request.plan, meters)
            stack.callback(runner.close)
            await runner.open()
            stages.append(_Mark("open taps", time.monotonic()))
            return cls(number, wiring, store, engines, runner, _durations(stages), variant, launcher, stack.pop_all())

    async def send(self, errand: Errand, *, trace: bool = False) -> Evidence:
        """Run one errand, by the route that it asks for; with ``trace``, follow its packet through the rules.

        Raises:
            CapabilityError: the lab's rules are of a kind that cannot be traced.
        """
        if trace and self.variant.name != "legacy":
            raise CapabilityError(
                f"rules that can be traced, which those of {self.variant.version} are not yet",
                "run with --iptables legacy",
            )
        if errand.detour is not None:
            self._take(errand.detour)
        return await self.runner.run(errand, trace=trace)

    async def dump(self, node: str) -> str:
        """The rules of one node as the kernel holds them."""
        if node not in self.engines:
            raise InternalError(f"no node {node!r} in this lab; there are {', '.join(self.engines)}")
        return without_barrier(await self.engines[node].dump())

    async def execute(self, place: str, argv: tuple[str, ...], deadline: Deadline) -> Completed:
        """Run a command in a node, pod or host. Raises ``TimeoutError`` when it has not ended by the deadline."""
        netns = self.wiring.namespaces.get(place)
        if netns is None:
            raise InternalError(f"no {place!r} in this lab; there are {', '.join(self.wiring.namespaces)}")
        return await self._launcher.run(netns, argv, place=f"{self.number}/{place}", deadline=deadline)

    async def close(self) -> Departed:
        """Stop the engines and let go of the namespaces; the kernel takes them apart in its own time.

        What of it is still held afterwards, ``leftovers`` tells: taps are closed in threads that take their time.
        """
        departed = note_departure(f"lab {self.number}", self.wiring.namespaces)
        await self._stack.aclose()
        end_processes(departed)
        return departed

    def _take(self, detour: Detour) -> None:
        index = self.wiring.plan.end(detour.namespace, detour.device).index
        route = Route(detour.destination, detour.device, via=detour.via)
        self.wiring.routes[detour.namespace].send([replace_route(route, index)])


def _meter(netns: NetNs, tool: IptablesTool, variant: IptablesVariant, family: Family) -> Meter:
    """The cheapest way to read the counters of this node's rules for one family."""
    save = partial(tool.save, family)
    if variant.name == "legacy":
        return TableMeter(netns.name, TableReader(netns, family), save)
    return TextMeter(netns.name, save)


@dataclass(frozen=True, slots=True)
class _Mark:
    """The end of one stage on the monotonic clock."""

    name: str
    at: float


def _durations(marks: list[_Mark]) -> tuple[Stage, ...]:
    return tuple(Stage(mark.name, mark.at - before.at) for before, mark in pairwise(marks))
