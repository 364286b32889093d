"""The process of a real control plane, from its start until its API answers."""

import base64
import secrets
from collections.abc import Sequence
from typing import Any, Final

from proxylab.addresses import IPNetwork
from proxylab.control.kubernetes.api_client import ApiClient, ApiRefusedError
from proxylab.control.kubernetes.settings import AUTHORITY, SETTINGS, kubeconfig, settings_files
from proxylab.control.pod_program import PodProgram
from proxylab.errors import ProgramError
from proxylab.timing import Deadline

_READ_SECONDS: Final = 5.0
_START_SECONDS: Final = 60.0
_ALLOCATES: Final = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes"
"""Once it is there, Services get cluster IPs. /livez comes later, and /readyz waits for what a lab does not need."""


async def start_control_plane(
    program: PodProgram, binary: str, service_networks: Sequence[IPNetwork]
) -> "ControlPlane":
    """Start it, and return once its API creates objects of every kind.

    Raises:
        ProgramError: it does not start, with the end of its log.
    """
    token = secrets.token_hex(16)
    deadline = Deadline.after(_START_SECONDS)
    await program.start((binary, "run", SETTINGS), settings_files(token, service_networks))
    authority = ""

    async def has_keys() -> bool:
        nonlocal authority
        try:
            authority = await program.output_of(("cat", AUTHORITY), Deadline.after(_READ_SECONDS))
        except ProgramError:  # not written yet
            return False
        return True

    await program.wait(has_keys, deadline, "the certificate of its API server")
    api = ApiClient(program.netns, authority, token)

    async def allocates() -> bool:
        try:
            await api.request("GET", _ALLOCATES)
        except (ApiRefusedError, OSError):
            return False
        return True

    await program.wait(allocates, deadline, "its API server allocates cluster IPs")
    return ControlPlane(api, authority, token)


class ControlPlane:
    """A control plane that runs: its API, and by what others reach it."""

    def __init__(self, api: ApiClient, authority: str, token: str) -> None:
        self.api: Final = api
        self._authority = authority
        self._token = token

    def kubeconfig(self, server: str, name: str = "lab") -> dict[str, Any]:
        """By what programs reach the API at that URL."""
        authority = base64.b64encode(self._authority.encode()).decode()
        return kubeconfig(name, server, self._token, {"certificate-authority-data": authority})
