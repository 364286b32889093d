"""Keeps the labs of failed probes running, as standing labs (``--keep``)."""

from typing import Final

from proxylab.client.control_sockets import ControlSocket, ControlSockets, NameTakenError, is_name
from proxylab.client.open_lab import OpenLab
from proxylab.report.standing_labs import commands
from proxylab.scenario.probes import Probe

_LIFETIME_SECONDS: Final = 8 * 3600.0
_MOST_LABS: Final = 10
"""Each of them is a process, and a user will not look at more."""

_MOST_NAMES: Final = 100


class KeptLabs:
    """Keeps the first few labs that it is given."""

    def __init__(self, control_sockets: ControlSockets | None = None) -> None:
        self._control_sockets = control_sockets or ControlSockets.of_user()
        self._kept = 0
        self._opened = ""

    def control_socket(self) -> ControlSocket:
        """The control socket with which a lab process must start so that its lab can be kept."""
        return ControlSocket(self._control_sockets)

    def keep(self, lab: OpenLab, probe: Probe | None = None) -> list[str]:
        """Detach a lab, and give it back. Returns the message for the user, with commands to try."""
        if self._kept == _MOST_LABS:
            return [f"the lab is not kept: {_MOST_LABS} are kept already; `proxylab down --all` ends them"]
        name, self._opened = self.open_control_socket(lab, _LIFETIME_SECONDS), ""
        self._kept += 1
        return [
            f"the lab is kept as {name} for 8h; try",
            *(f"  {each}" for each in commands(lab.scenario, name, probe)),
        ]

    def hold(self, lab: OpenLab, probe: Probe | None = None) -> list[str]:
        """Open a lab's control socket while its session lasts. Returns the message. The lab may be kept later."""
        name = self._opened = self.open_control_socket(lab, None)
        return [f"the lab runs as {name}; try", *(f"  {each}" for each in commands(lab.scenario, name, probe))][:-1]

    def open_control_socket(self, lab: OpenLab, seconds: float | None) -> str:
        """Open a lab's control socket under its scenario's name, or that and a number. Raises ``NameTakenError``."""
        if self._opened:
            lab.detach(self._opened, seconds)
            return self._opened
        wanted = lab.scenario.name if is_name(lab.scenario.name) else "lab"
        for number in range(1, _MOST_NAMES):
            name = wanted if number == 1 else f"{wanted[:58]}-{number}"
            try:
                lab.detach(name, seconds)
            except NameTakenError:
                continue
            return name
        raise NameTakenError(wanted)
