"""Starts the real programs in the pods of a lab: CoreDNS, nginx as the controller of Ingresses, and commands."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from proxylab.addresses import IPAddress, Protocol
from proxylab.control.coredns import CoreDns, NameServerPod
from proxylab.control.http_client import takes_connections
from proxylab.control.ingress.controller import COUNTED, IngressController, IngressPod
from proxylab.control.ingress.nginx_conf import NginxListen
from proxylab.control.pod_program import PodProgram
from proxylab.engines.barrier import NAMESPACE
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.name_servers import name_servers
from proxylab.protocol.messages import Build
from proxylab.scenario.dns import NameServer
from proxylab.scenario.words import Program
from proxylab.server.control_plane import LabControlPlane
from proxylab.server.network import BuiltNetwork
from proxylab.timing import Deadline

_COREDNS: Final = NameServer.COREDNS.value
_START_SECONDS: Final = 20.0

Told = Callable[[str], Callable[[str], None]]
"""What hears each line that the program of a pod of that name prints."""


async def start_coredns(
    request: Build,
    network: BuiltNetwork,
    control_plane: LabControlPlane,
    launcher: Launcher,
    stack: AsyncExitStack,
    told: Told,
) -> CoreDns | None:
    """Start CoreDNS in every pod whose port it serves, and wait until it knows the cluster; ``None`` without such pods.

    Raises:
        ProgramError: it does not start.
    """
    with_commands = {each.name for each in request.plan.pods if each.commands}  # they run a server of the author's
    homes = {
        listener.name: namespace.name
        for namespace in request.plan.namespaces
        for listener in namespace.listeners
        if listener.program == _COREDNS and listener.name not in with_commands
    }
    if not homes:
        return None
    addresses = {each.name: each.address for each in reversed(name_servers(request.plan))}
    pods = [
        NameServerPod(
            PodProgram(
                f"CoreDNS in pod {name}",
                network.wiring.namespaces[home],
                f"{network.number}/{home}",
                launcher,
                told=told(name),
            ),
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


async def start_ingress(
    request: Build,
    network: BuiltNetwork,
    control_plane: LabControlPlane,
    launcher: Launcher,
    stack: AsyncExitStack,
    told: Told,
) -> IngressController | None:
    """Start nginx in every pod whose program it is, and wait until it serves; ``None`` without such pods.

    Raises:
        CapabilityError: this machine has no nginx, or no openssl where a port has TLS.
        ProgramError: it does not start.
    """
    pods = []
    for placed in request.plan.pods:
        listeners = [
            each
            for each in request.plan.namespace(placed.namespace).listeners
            if each.name == placed.name and each.program == Program.NGINX and not placed.commands
        ]
        if listeners:
            netns, known_as = network.wiring.namespaces[placed.namespace], f"{network.number}/{placed.namespace}"
            what, hears = f"nginx in pod {placed.name}", told(placed.name)
            program = PodProgram(what, netns, known_as, launcher, COUNTED, hears)
            listens = tuple(NginxListen(each.port, each.tls) for each in listeners)
            pods.append(IngressPod(program, placed.name, listens, tuple(each.version for each in placed.addresses)))
    if not pods:
        return None
    controller = IngressController(pods, control_plane.store, launcher)
    stack.push_async_callback(controller.stop)
    await controller.start()
    return controller


async def start_commands(
    request: Build, network: BuiltNetwork, launcher: Launcher, stack: AsyncExitStack, told: Told
) -> None:
    """Start the commands of all pods that have some, and wait until their TCP ports take connections.

    Raises:
        ProgramError: one does not start, or does not listen.
    """
    for placed in (each for each in request.plan.pods if each.commands):
        netns, known_as = network.wiring.namespaces[placed.namespace], f"{network.number}/{placed.namespace}"
        for argv in placed.commands:
            what, hears = f"{argv[0]} in pod {placed.name}", told(placed.name)
            program = PodProgram(what, netns, known_as, launcher, told=hears)
            stack.push_async_callback(program.stop)
            await program.start(argv, {})
        listeners = [each for each in request.plan.namespace(placed.namespace).listeners if each.name == placed.name]
        ports = [each.port for each in listeners if each.protocol is Protocol.TCP]

        async def listens(netns: NetNs = netns, own: IPAddress = placed.addresses[0], ports: list[int] = ports) -> bool:
            return all([await takes_connections(netns, own, port) for port in ports])

        await program.wait(listens, Deadline.after(_START_SECONDS), f"TCP ports {ports} take connections")
