"""The real control plane of a lab: its namespace and process, its mirror, and the way in for people."""

import base64
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing, suppress
from functools import partial
from typing import Any, Final

from proxylab.addresses import IPAddress, IPNetwork
from proxylab.cluster.objects import EndpointSlice, Node, ServiceCIDR
from proxylab.cluster.store import Store
from proxylab.control.kubernetes.adoption import adopt
from proxylab.control.kubernetes.control_plane import ControlPlane, start_control_plane
from proxylab.control.kubernetes.kubelet import Kubelet
from proxylab.control.kubernetes.mirror import Mirror
from proxylab.control.kubernetes.relay import Relay
from proxylab.control.kubernetes.settings import SCHEDULER, kubeconfig
from proxylab.control.pod_program import PodProgram
from proxylab.engines.barrier import is_barrier
from proxylab.engines.fleet import Fleet
from proxylab.errors import EngineError, ProgramError
from proxylab.kernel.netlink.requests import set_loopback_up
from proxylab.kernel.netlink.socket import open_netlink
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.server.added_pods import AddedPods
from proxylab.server.control_plane import LabControlPlane
from proxylab.server.network import BuiltNetwork
from proxylab.timing import Deadline, DeadlineExceededError, wait_until

PROGRAM: Final = "control-plane"
"""Its name among the programs of a ``Build``."""

_NETNS: Final = "control-plane"


class Kubernetes:
    """A control plane that runs, and its relay once a client has handed a socket over.

    Args:
        programs: its processes.
    """

    def __init__(self, control_plane: ControlPlane, programs: Sequence[PodProgram]) -> None:
        self._control_plane = control_plane
        self._programs = programs
        self._relay: Relay | None = None

    def listen(self, listening: socket.socket) -> None:
        """Serve the API on a socket of the user's machine, in place of an earlier one."""
        if self._relay is not None:
            listening.close()
            raise ProgramError(_NETNS, "is served on a port of this machine already")
        self._relay = Relay(listening, self._control_plane.api.dial)

    async def raise_if_ended(self) -> None:
        """Raise ``ProgramError`` if one of its processes has ended: the lab no longer follows what people write."""
        for program in self._programs:
            await program.raise_if_ended()

    async def close(self) -> None:
        """Serve it no longer."""
        if self._relay is not None:
            await self._relay.close()

    def kubeconfig(self, name: str) -> dict[str, Any]:
        """By what people of this machine reach the API. Raises ``ProgramError`` before there is a way in."""
        if self._relay is None:
            raise ProgramError(_NETNS, "is served on no port of this machine yet")
        authority = base64.b64encode(self._control_plane.authority.encode()).decode()
        server = f"https://127.0.0.1:{self._relay.port}"
        return kubeconfig(name, server, self._control_plane.token, {"certificate-authority-data": authority})


async def start_kubernetes(
    binary: str, network: BuiltNetwork, lab: LabControlPlane, launcher: Launcher, stack: AsyncExitStack
) -> Kubernetes:
    """Start the control plane, bring the objects of the lab's store into it, and let the store follow it.

    Raises:
        ProgramError: it does not start, or refuses an object.
    """
    store = lab.store
    netns = launcher.make_netns(_NETNS)
    stack.callback(netns.close)
    with closing(open_netlink(netns)) as link:
        link.send([set_loopback_up()])
    known_as = f"{network.number}/{_NETNS}"
    launcher.furnish(known_as, "")
    stack.callback(launcher.forget, [known_as])
    program = PodProgram("the control plane", netns, known_as, launcher)
    stack.push_async_callback(program.stop)
    control_plane = await start_control_plane(program, binary, _service_networks(store))
    scheduler = PodProgram("the scheduler", netns, known_as, launcher)
    kubernetes = Kubernetes(control_plane, (program, scheduler))
    stack.push_async_callback(kubernetes.close)
    await adopt(control_plane.api, store, is_barrier)
    mirror = Mirror(control_plane.api, store, is_barrier)
    stack.push_async_callback(mirror.stop)
    nodes = {each.name: each for each in store.list(Node)}
    networks = {name: each.pod_cidrs for name, each in nodes.items()}
    added = AddedPods(network.wiring, lab.choice.families, networks, store, launcher.make_netns)
    addresses = {name: each.addresses for name, each in nodes.items()}
    kubelet = Kubelet(control_plane.api, addresses, added.run, partial(_drained, store, lab.fleet))
    stack.push_async_callback(kubelet.stop)
    await mirror.start()
    await kubelet.start()
    stack.push_async_callback(scheduler.stop)
    await scheduler.start((binary, *SCHEDULER), {})
    return kubernetes


async def _drained(store: Store, fleet: Fleet, addresses: frozenset[IPAddress], deadline: Deadline) -> None:
    """Return when the proxies have taken all endpoints of these addresses out, or at the deadline."""

    def is_out() -> bool:
        endpoints = (endpoint for each in store.list(EndpointSlice) for endpoint in each.endpoints)
        return not any(each.ready and not addresses.isdisjoint(each.addresses) for each in endpoints)

    with suppress(DeadlineExceededError, EngineError):
        await wait_until(is_out, deadline, "no ready endpoint of a pod that ends")
        await fleet.wait_synced(store.revision, deadline)


def _service_networks(store: Store) -> tuple[IPNetwork, ...]:
    return next(each.cidrs for each in store.list(ServiceCIDR))
