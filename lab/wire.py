"""A standing wire: namespaces and links with their taps, which one lab after another may use.

Owns: what makes one wire fit a second lab, and the way from a used wire to one that is as new.
Must not: run engines, or keep a wire of which it does not know what has happened in it.

To make a lab of three nodes costs 30 ms, and to close it keeps the kernel's network lock busy for 100 more, in which
nobody can build another; to make one as new costs 3. So a lab whose plan has the same wire as the one before it stands
on that. It must not be able to tell. What probes and an embedded engine leave behind is known, kind by kind, and taken
away (``kernel.reset``); what a command did that somebody ran in the lab nobody knows, so such a wire is spent. Nor is
all known that a program of somebody else's does to its node; but it may run on, and be told of other objects.
"""

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Self

from lab.engines.protocol import EngineChoice
from lab.kernel.census import Census
from lab.kernel.cleanup import Cleanup
from lab.kernel.launcher import Launcher
from lab.kernel.leftovers import Departed, end_processes, note_departure
from lab.kernel.origins import Origins
from lab.kernel.realise import Wiring, realise
from lab.kernel.reset import NotAsNewError, Renewal
from lab.kernel.rules import IptablesVariant
from lab.messages import Build
from lab.plan.model import Plan
from lab.traffic.watch import Watch

__all__ = ["Purpose", "Wire"]

_KNOWN_ENGINES = "embedded"
_KNOWN_MODES = frozenset({"iptables", "nftables"})


@dataclass(frozen=True, slots=True)
class Purpose:
    """What must be equal for a second lab to stand on the same wire: the wire, and what the rules are made of.

    A table of legacy iptables, once made, cannot be unmade. So a wire that has seen one variant serves only that one.
    """

    plan: Plan
    engine: EngineChoice
    variant: str

    @classmethod
    def of(cls, request: Build, variant: IptablesVariant) -> Self:
        """The purpose of a lab. Who listens where is no matter of the wire; nor is what an engine is told."""
        bare = tuple(replace(namespace, listeners=()) for namespace in request.plan.namespaces)
        engine = EngineChoice(request.engine.name, families=request.engine.families)
        return cls(replace(request.plan, namespaces=bare, pods=()), engine, variant.name)

    @property
    def leaves_known_traces(self) -> bool:
        """Whether all is known that the engine does to a node."""
        made_by, _, mode = self.engine.name.rpartition("/")
        return made_by.partition("@")[0] == _KNOWN_ENGINES and mode in _KNOWN_MODES


@dataclass(slots=True)
class Wire:
    """A wire in the kernel. ``number`` tells its places from those of any other that the launcher knows."""

    number: int
    purpose: Purpose
    wiring: Wiring
    watch: Watch
    _renewal: Renewal
    _stack: ExitStack
    _held: Census
    spent: str = field(default="")
    """Why no other lab may have it; empty while it may be made as new."""

    @classmethod
    def build(cls, number: int, plan: Plan, purpose: Purpose, launcher: Launcher) -> Self:
        """Make the plan real.

        Raises:
            CapabilityError: the machine lacks something that the plan needs.
        """
        with ExitStack() as stack:
            wiring = stack.enter_context(realise(plan))
            stack.callback(launcher.forget, [f"{number}/{name}" for name in wiring.namespaces])
            renewal = Renewal(wiring)
            stack.callback(renewal.close)
            watch = Watch(wiring.namespaces, plan)
            stack.callback(watch.close)
            return cls(number, purpose, wiring, watch, renewal, stack.pop_all(), Census.take())

    def fits(self, purpose: Purpose) -> bool:
        """Whether a lab of that purpose may stand on it once it is as new."""
        return not self.spent and purpose == self.purpose and purpose.leaves_known_traces

    def serves(self, purpose: Purpose) -> bool:
        """Whether a lab of that purpose may stand on it while its engines run on."""
        return not self.spent and purpose == self.purpose

    def left_behind(self, origins: Origins) -> list[str]:
        """What there is in this process that the wire does not hold, in words, after a lab on it has retired."""
        return self._held.also(self.watch.descriptors()).since(origins)

    def renew(self, plan: Plan, served: Collection[int] = ()) -> None:
        """Make it as new, for the lab of ``plan``. What cannot be made as new is spent, with the reason.

        Args:
            plan: its wire is this one.
            served: the ports of the nodes by which engines run on; none where no engine does.
        """
        legacy = self.purpose.engine.families if self.purpose.variant == "legacy" else ()
        try:
            self.watch.renew()
            self._renewal.make_as_new(legacy, served)
            self.watch.discard()
        except (NotAsNewError, OSError) as error:
            self.spent = f"it cannot be made as new: {error}"
        self.wiring = replace(self.wiring, plan=plan)
        self._held = Census.take()

    def close(self, cleanup: Cleanup) -> Departed:
        """Let go of the namespaces; the kernel takes them apart in its own time, which ``cleanup`` can wait for.

        What of it is still held afterwards, ``leftovers`` tells: taps are closed in threads that take their time.
        """
        lab = f"lab {self.number}"
        departed = note_departure(lab, self.wiring.namespaces, f"{self.number}/")
        cleanup.follow(lab, self.wiring.namespaces.values())
        self._stack.close()
        end_processes(departed)
        return departed
