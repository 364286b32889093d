"""Labs of failed probes that stay.

Owns: ``KeptLabs``: under which names they stay, how many, and the words that tell of it.
Must not: decide what has failed.
"""

from typing import Final

from proxylab.client.control_sockets import ControlSocket, ControlSockets, NameTakenError, is_name
from proxylab.client.open_lab import OpenLab
from proxylab.report.standing_labs import commands
from proxylab.scenario.model import Probe

__all__ = ["KeptLabs"]

_SECONDS: Final = 8 * 3600.0
_MOST: Final = 10
"""Each of them is a process, and nobody looks at more."""

_MOST_TRIES: Final = 100


class KeptLabs:
    """Lets the first few labs stay that it is given."""

    def __init__(self, control_sockets: ControlSockets | None = None) -> None:
        self._control_sockets = control_sockets or ControlSockets.of_user()
        self._kept = 0
        self._held = ""

    def control_socket(self) -> ControlSocket:
        """What a lab process is born with whose lab may stay."""
        return ControlSocket(self._control_sockets)

    def keep(self, lab: OpenLab, probe: Probe | None = None) -> list[str]:
        """Let a lab stay, and give it back; in words, with what to type.

        Args:
            lab: in which something failed.
            probe: which; the commands are about it.
        """
        if self._kept == _MOST:
            return [f"the lab is not kept: {_MOST} are kept already; `proxylab down --all` ends them"]
        name, self._held = self.open_control_socket(lab, _SECONDS), ""
        self._kept += 1
        return [f"the lab stays as {name}, for 8h; try", *(f"  {each}" for each in commands(lab.scenario, name, probe))]

    def hold(self, lab: OpenLab, probe: Probe | None = None) -> list[str]:
        """Let others come to a lab as long as its session lasts; in words, with what to type. It may be kept then."""
        name = self._held = self.open_control_socket(lab, None)
        return [f"the lab stands as {name}; try", *(f"  {each}" for each in commands(lab.scenario, name, probe))][:-1]

    def open_control_socket(self, lab: OpenLab, seconds: float | None) -> str:
        """Let a lab stay, by its scenario's name or the next like it. Raises ``NameTakenError`` if all are taken."""
        if self._held:
            lab.stay(self._held, seconds)
            return self._held
        wanted = lab.scenario.name if is_name(lab.scenario.name) else "lab"
        for number in range(1, _MOST_TRIES):
            name = wanted if number == 1 else f"{wanted[:58]}-{number}"
            try:
                lab.stay(name, seconds)
            except NameTakenError:
                continue
            return name
        raise NameTakenError(wanted)
