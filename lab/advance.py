"""One step of a scenario, made in the lab that stands.

Owns: the order in which the parts of a change are made, and the wait for what the step names.
Must not: judge, or know what the step is for.

Engines that a step ends are down before anything changes, so they know nothing of the step; those that it starts begin
with the cluster as the step leaves it.

A pod that is deleted keeps its place on the wire, where taps still tell what comes to it; but nothing leaves its
namespace any more, as from a machine that is not there. A pod that shares its namespace is gone when all in it are;
one in its node's namespace goes for the API alone, whose node lives on.
"""

from dataclasses import dataclass, field
from typing import Final

from lab.cluster.objects import Node, Pod
from lab.cluster.store import Store
from lab.engines.fleet import Fleet
from lab.errors import EngineError
from lab.ip import Family
from lab.kernel.realise import Wiring
from lab.kernel.requests import mute, unmute
from lab.kernel.sysctl import write_sysctls
from lab.messages import Advance
from lab.plan.model import Role, Sysctl
from lab.scenario.model import EngineState, RulesState, Until
from lab.timing import Deadline, DeadlineExceededError, pass_by, together, wait_until_seen

__all__ = ["Course"]

_SYNC_SECONDS: Final = 60.0
_LAST_LINES: Final = 30
_ALWAYS_IN_USE: Final = ("*filter", "*nat")


@dataclass(slots=True)
class Course:
    """The steps of one lab, one after the other."""

    store: Store
    fleet: Fleet
    wiring: Wiring
    families: tuple[Family, ...]
    _mute: set[str] = field(default_factory=set)
    _gone: set[str] = field(default_factory=set)

    async def advance(self, request: Advance) -> None:
        """Make the change of a step, and return when what it waits for is there.

        Raises:
            EngineError: an engine did not start, or what the step waits for did not come.
            CapabilityError: a sysctl cannot be written on this machine.
        """
        await self.fleet.take_down(request.change.engines)
        if any(isinstance(thing, Node) for thing in (*request.applied, *request.deleted)):
            await self.fleet.note()
        self._alter_nodes(request)
        self._alter_pods(request)
        for thing in request.deleted:
            self.store.delete(thing.key)
        for thing in request.applied:
            self.store.apply(thing)
        await self.fleet.bring_up(request.change.engines)
        if request.until is None:
            await self.fleet.wait_synced(self.store.revision, Deadline.after(_SYNC_SECONDS))
        else:
            await self._wait(request.step, request.until)

    def _alter_nodes(self, request: Advance) -> None:
        for name, change in request.change.nodes.items():
            sysctls = [Sysctl(key, value) for key, value in change.sysctls.items()]
            write_sysctls(self.wiring.namespaces[name], sysctls)

    def _alter_pods(self, request: Advance) -> None:
        """Silence namespaces in which no pod is left, and let those speak to which one has come back."""
        self._gone |= {thing.name for thing in request.deleted if isinstance(thing, Pod)}
        self._gone -= {thing.name for thing in request.applied if isinstance(thing, Pod)}
        by_namespace: dict[str, list[str]] = {}
        for pod in self.wiring.plan.pods:
            by_namespace.setdefault(pod.namespace, []).append(pod.name)
        for name, pods in by_namespace.items():
            if self.wiring.plan.namespace(name).role is not Role.POD:
                continue
            gone = self._gone.issuperset(pods)
            if gone is not (name in self._mute):
                said = mute if gone else unmute
                self.wiring.routes[name].send([said(family) for family in self.families])
                self._mute ^= {name}

    async def _wait(self, step: str, until: Until) -> None:
        deadline = Deadline.after(until.within / 1000)
        synced = [node for node, state in until.engines.items() if state is EngineState.SYNCED]
        await self.fleet.wait_synced(self.store.revision, deadline, synced)
        await together(self._wait_for_rules(step, node, state, deadline) for node, state in until.rules.items())
        if until.elapsed is not None:
            await pass_by(until.elapsed / 1000)

    async def _wait_for_rules(self, step: str, node: str, state: RulesState, deadline: Deadline) -> None:
        engine = self.fleet.engines[node]

        async def look() -> bool:
            return _holds_rules(await engine.dump(), present=state is RulesState.PRESENT)

        try:
            await wait_until_seen(look, deadline, f"the rules of the engine are {state} in its node's kernel")
        except DeadlineExceededError as late:
            last = "\n".join(engine.logs()[-_LAST_LINES:])
            raise EngineError(node, f"step {step!r}: {late}", last) from late


def _holds_rules(dump: str, *, present: bool) -> bool:
    """Whether rules are in every table of which a proxy always makes use, or in none of them."""
    if not dump.startswith(("*", "#")):  # nft prints the one table of a proxy, which is written as a whole
        return ("chain " in dump) is present
    tables: list[bool] = []
    in_use = False
    for line in dump.splitlines():
        if line.startswith("*"):
            in_use = line in _ALWAYS_IN_USE
            tables += [False] * in_use
        elif in_use and " -A " in f" {line}":  # iptables-save -c writes a rule's counters before it
            tables[-1] = True
    return all(tables) if present else not any(tables)
