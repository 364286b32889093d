"""A standing lab, opened over its control socket by a client that has not built it.

No lab starts here: ``proxylab up`` (``cli/up.py``) builds one by ``client/session.py`` and detaches it.
``attach_to`` reads the record that earlier clients have left in it. ``proxylab.client.control_sockets`` finds the
socket.
"""

from typing import Final

from msgspec.structs import replace

from proxylab.client.connection import ControlConnection
from proxylab.client.edit import Edit
from proxylab.client.open_lab import OpenLab
from proxylab.plan.assembly import assemble
from proxylab.protocol.standing_labs import LabRecord, Remember
from proxylab.timing import Deadline

_ANSWER_SECONDS: Final = 30.0


def attach_to(connection: ControlConnection) -> "StandingLab":
    """The standing lab at the other end of the connection. Raises ``LabGoneError``."""
    return StandingLab(connection, connection.request(Remember(), Deadline.after(_ANSWER_SECONDS)))


class StandingLab(OpenLab):
    """A detached lab, with the state that its maker and later clients have recorded in it."""

    def __init__(self, connection: ControlConnection, record: LabRecord) -> None:
        assembly = assemble(record.scenario)
        super().__init__(connection, assembly, record.built, record.engine, record.seed, record.source, record.made)
        self._record = record

    def bring_to(self, found: Edit) -> None:
        """Record the change for later clients, and make it (see ``OpenLab.bring_to``)."""
        self._record = replace(self._record, scenario=found.scenario, made=0)
        self.connection.request(Remember(self._record), Deadline.after(_ANSWER_SECONDS))
        super().bring_to(found)
