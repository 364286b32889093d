"""A standing lab, as a client that comes by its door has it.

Owns: ``attach_to``, and how such a lab is brought to an edited scenario.
Must not: start a lab, or keep one.
"""

from dataclasses import replace
from typing import Final

from proxylab.client.connection import ControlConnection
from proxylab.client.edit import Edit, edit
from proxylab.client.open_lab import OpenLab
from proxylab.plan.assembly import assemble
from proxylab.protocol.messages import Advanced
from proxylab.protocol.standing_labs import Memory, Remember
from proxylab.scenario.model import Scenario
from proxylab.timing import Deadline

__all__ = ["StandingLab", "attach_to"]

_SECONDS: Final = 30.0
_CHANGE_SECONDS: Final = 120.0


def attach_to(connection: ControlConnection) -> "StandingLab":
    """The standing lab at the other end of the line.

    Raises:
        LabGoneError: it has ended.
    """
    return StandingLab(connection, connection.request(Remember(), Memory, Deadline.after(_SECONDS)))


class StandingLab(OpenLab):
    """A lab that stays, with all that its maker and later clients have left to be known of it."""

    def __init__(self, connection: ControlConnection, memory: Memory) -> None:
        assembly = assemble(memory.scenario)
        super().__init__(connection, assembly, memory.built, memory.engine, memory.seed, memory.source, memory.made)
        self._memory = memory

    def edit(self, wanted: Scenario) -> Edit:
        """What the edited scenario would change. Raises ``ScenarioError`` where it cannot be laid out."""
        return edit(self._assembly, self._made, wanted)

    def bring_to(self, found: Edit) -> None:
        """Make the change, and let those who come later know of it: from then on it is the edited scenario's lab.

        Raises:
            CapabilityError: the machine lacks something that the change needs.
            EngineError: an engine did not take it up.
        """
        self._assembly = assemble(found.scenario)
        self._made = 0
        self._memory = replace(self._memory, scenario=found.scenario, made=0)
        self.connection.request(Remember(self._memory), Memory, Deadline.after(_SECONDS))
        if found.changes:
            self._ask(found.advance, Advanced, _CHANGE_SECONDS)
