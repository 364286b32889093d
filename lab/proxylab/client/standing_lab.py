"""A standing lab, opened over its control socket by a client that has not built it.

No lab starts here: ``proxylab up`` (``cli/up.py``) builds one by ``client/session.py`` and detaches it.
``attach_to`` reads the record that earlier clients have left in it. ``proxylab.client.control_sockets`` finds the
socket.
"""

from typing import Final

from msgspec.structs import replace

from proxylab.client.connection import ControlConnection
from proxylab.client.edit import Edit, edit
from proxylab.client.open_lab import OpenLab
from proxylab.plan.assembly import assemble
from proxylab.protocol.messages import Advanced
from proxylab.protocol.standing_labs import LabRecord, Remember
from proxylab.scenario.model import Scenario
from proxylab.timing import Deadline

__all__ = ["StandingLab", "attach_to"]

_ANSWER_SECONDS: Final = 30.0
_CHANGE_SECONDS: Final = 120.0


def attach_to(connection: ControlConnection) -> "StandingLab":
    """The standing lab at the other end of the connection.

    Raises:
        LabGoneError: it has ended.
    """
    return StandingLab(connection, connection.request(Remember(), LabRecord, Deadline.after(_ANSWER_SECONDS)))


class StandingLab(OpenLab):
    """A detached lab, with the state that its maker and later clients have recorded in it."""

    def __init__(self, connection: ControlConnection, record: LabRecord) -> None:
        assembly = assemble(record.scenario)
        super().__init__(connection, assembly, record.built, record.engine, record.seed, record.source, record.made)
        self._record = record

    def edit(self, wanted: Scenario) -> Edit:
        """The changes that the edited scenario would make. Raises ``ScenarioError`` where it cannot be laid out."""
        return edit(self._assembly, self.made, wanted)

    def bring_to(self, found: Edit) -> None:
        """Make the change, and record it for later clients: from then on it is the edited scenario's lab.

        Raises:
            CapabilityError: the machine lacks something that the change needs.
            EngineError: an engine did not synchronise.
        """
        self._assembly = assemble(found.scenario)
        self.made = 0
        self._record = replace(self._record, scenario=found.scenario, made=0)
        self.connection.request(Remember(self._record), LabRecord, Deadline.after(_ANSWER_SECONDS))
        if found.changes:
            self._ask(found.advance, Advanced, _CHANGE_SECONDS)
