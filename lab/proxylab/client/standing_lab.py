"""A standing lab, opened over its control socket by a client that has not built it.

No lab starts here: ``proxylab up`` (``cli/up.py``) builds one by ``client/session.py`` and detaches it.
``attach_to`` reads the record that earlier clients have left in it. ``proxylab.client.control_sockets`` finds the
socket.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from proxylab.client.connection import ControlConnection
from proxylab.client.edit import Edit
from proxylab.client.open_lab import OpenLab
from proxylab.plan.assembly import assemble
from proxylab.protocol.standing_labs import LabRecord, Remember
from proxylab.scenario.model import Scenario
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

    def with_manifests(self, applied: Mapping[str, str]) -> Scenario:
        """The lab's scenario with what was applied to it before, and these texts of manifests.

        Raises ``ScenarioError``.
        """
        from proxylab.scenario.load import parse_with_manifests, read_text  # noqa: PLC0415 - few verbs read a file

        text = self._record.source or read_text(Path(self._record.directory) / self.scenario.file)
        return parse_with_manifests(text, self.scenario.file, {**self._record.applied, **applied})

    def bring_to(self, found: Edit, applied: Mapping[str, str] = MappingProxyType({})) -> None:
        """Record the change for later clients, and make it (see ``OpenLab.bring_to``).

        ``applied`` are the manifests to which it is due; without any it is due to the scenario's own file.
        """
        applied = {**self._record.applied, **applied} if applied else {}
        self._record = replace(self._record, scenario=found.scenario, made=0, applied=applied)
        self.connection.request(Remember(self._record), Deadline.after(_ANSWER_SECONDS))
        super().bring_to(found)
