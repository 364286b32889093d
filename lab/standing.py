"""A lab that stands: on a wire, with its engines running.

Owns: the order store, engines, synced, responders; and the way back.
Must not: judge, speak to the client, know more than one lab, or make the wire that it stands on (``lab.wire`` does).
"""

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, Self

from lab.cluster.store import Store
from lab.engines.catalogue import make_engine
from lab.engines.protocol import Engine
from lab.errors import CapabilityError, InternalError
from lab.ip import Family
from lab.kernel.launcher import Completed, Launcher
from lab.kernel.netns import NetNs
from lab.kernel.rules import IptablesTool, IptablesVariant
from lab.kernel.xtables import TableReader
from lab.messages import Build, Stage
from lab.plan.errand import Errand
from lab.plan.model import Role
from lab.timing import Deadline, together
from lab.traffic.meters import Meter, TableMeter, TextMeter
from lab.traffic.runner import Runner
from lab.verdict.evidence import Evidence
from lab.wire import Wire

__all__ = ["Lab"]

_SYNC_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Lab:
    """Everything of one lab that the lab process holds. ``stages`` says how long each part of the build took."""

    number: int
    wire: Wire
    store: Store
    engines: dict[str, Engine]
    runner: Runner
    stages: tuple[Stage, ...]
    variant: IptablesVariant
    _launcher: Launcher
    _stack: AsyncExitStack

    @classmethod
    async def build(
        cls, number: int, request: Build, launcher: Launcher, variant: IptablesVariant, wire: Wire, laid: Stage
    ) -> Self:
        """Start an engine in every node of the wire, and wait until all have programmed the objects.

        Args:
            number: how many labs there have been, with this one.
            request: what the client asked for.
            launcher: starts commands.
            variant: of iptables.
            wire: new, or as new, for the plan of the request.
            laid: how long the wire took.

        Raises:
            CapabilityError: the machine lacks something that the engine needs.
            EngineError: an engine did not start, or did not synchronise in time.
        """
        stages = [_Mark("start", time.monotonic())]
        wiring = wire.wiring
        async with AsyncExitStack() as stack:
            store = Store()
            tools = {
                namespace.name: IptablesTool(
                    launcher, wiring.namespaces[namespace.name], f"{wire.number}/{namespace.name}", variant
                )
                for namespace in request.plan.namespaces
                if namespace.role is Role.NODE
            }
            engines = {
                name: make_engine(request.engine, name, store, tool, wiring.namespaces[name])
                for name, tool in tools.items()
            }
            revision = max((store.apply(thing) for thing in request.objects), default=0)
            deadline = Deadline.after(_SYNC_SECONDS)
            for engine in engines.values():
                stack.push_async_callback(engine.stop)
            await together(engine.start() for engine in engines.values())
            await together(engine.wait_synced(revision, deadline) for engine in engines.values())
            stages.append(_Mark("synchronise", time.monotonic()))

            meters = {name: _meter(wiring.namespaces[name], tool, variant) for name, tool in tools.items()}
            runner = Runner(wiring.namespaces, request.plan, meters, watch=wire.watch)
            stack.callback(runner.close)
            await runner.open()
            stages.append(_Mark("open responders", time.monotonic()))
            return cls(
                number, wire, store, engines, runner, (laid, *_durations(stages)), variant, launcher, stack.pop_all()
            )

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
            self.wire.take(errand.detour)
        return await self.runner.run(errand, trace=trace)

    async def dump(self, node: str) -> str:
        """The rules of one node as the kernel holds them."""
        if node not in self.engines:
            raise InternalError(f"no node {node!r} in this lab; there are {', '.join(self.engines)}")
        return await self.engines[node].dump()

    async def execute(self, place: str, argv: tuple[str, ...], deadline: Deadline) -> Completed:
        """Run a command in a node, pod or host. Raises ``TimeoutError`` when it has not ended by the deadline."""
        netns = self.wire.wiring.namespaces.get(place)
        if netns is None:
            raise InternalError(f"no {place!r} in this lab; there are {', '.join(self.wire.wiring.namespaces)}")
        self.wire.spent = f"somebody ran {argv[0]} in {place}"
        return await self._launcher.run(netns, argv, place=f"{self.wire.number}/{place}", deadline=deadline)

    async def retire(self) -> None:
        """Stop the engines and the responders. The wire stays, as the lab has left it."""
        await self._stack.aclose()


def _meter(netns: NetNs, tool: IptablesTool, variant: IptablesVariant) -> Meter:
    """The cheapest way to read the counters of this node's rules."""
    save = partial(tool.save, Family.IPV4)
    if variant.name == "legacy":
        return TableMeter(netns.name, TableReader(netns, Family.IPV4), save)
    return TextMeter(netns.name, save)


@dataclass(frozen=True, slots=True)
class _Mark:
    """The end of one stage on the monotonic clock."""

    name: str
    at: float


def _durations(marks: list[_Mark]) -> tuple[Stage, ...]:
    return tuple(Stage(mark.name, mark.at - before.at) for before, mark in pairwise(marks))
