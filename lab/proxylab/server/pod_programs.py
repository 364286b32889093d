"""Starts the real programs in the pods of a lab: CoreDNS."""

from contextlib import AsyncExitStack
from typing import Final

from proxylab.control.coredns import CoreDns, NameServerPod
from proxylab.control.pod_program import PodProgram
from proxylab.engines.barrier import NAMESPACE
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.plan.name_servers import name_servers
from proxylab.protocol.messages import Build
from proxylab.scenario.dns import NameServer
from proxylab.server.control_plane import ControlPlane
from proxylab.server.network import Network

__all__ = ["start_coredns"]

_COREDNS: Final = NameServer.COREDNS.value


async def start_coredns(
    request: Build, network: Network, control_plane: ControlPlane, launcher: Launcher, stack: AsyncExitStack
) -> CoreDns | None:
    """Start CoreDNS in every pod whose port it serves, and wait until it knows the cluster; ``None`` without such pods.

    Raises:
        ProgramError: it does not start.
    """
    homes = {
        listener.name: namespace.name
        for namespace in request.plan.namespaces
        for listener in namespace.listeners
        if listener.program == _COREDNS
    }
    if not homes:
        return None
    addresses = {each.name: each.address for each in reversed(name_servers(request.plan))}
    pods = [
        NameServerPod(
            PodProgram(f"CoreDNS in pod {name}", network.wiring.namespaces[home], f"{network.number}/{home}", launcher),
            name,
            addresses[name],
        )
        for name, home in homes.items()
    ]
    store, binary = control_plane.store, request.programs[_COREDNS]
    coredns = CoreDns(pods, binary, request.corefile, control_plane.api, store, NAMESPACE)
    stack.push_async_callback(coredns.stop)
    await coredns.start()
    return coredns
