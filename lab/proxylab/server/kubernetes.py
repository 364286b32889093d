"""The real control plane of a lab: its namespace and process, its mirror, and the way in for people."""

import os
import shlex
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, closing, suppress
from functools import partial
from ipaddress import ip_interface
from typing import Any, Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.cluster.allocate import Pool
from proxylab.cluster.documents import Document
from proxylab.cluster.objects import EndpointSlice, Node, ServiceCIDR
from proxylab.cluster.store import Store
from proxylab.control.http_server import listen_inside
from proxylab.control.kubernetes.control_plane import ControlPlane, start_control_plane
from proxylab.control.kubernetes.kept_objects import KeptObjects
from proxylab.control.kubernetes.kubelet import Kubelet
from proxylab.control.kubernetes.kubelet_api import KUBELET_PORT, KubeletApi
from proxylab.control.kubernetes.load_balancers import LoadBalancers
from proxylab.control.kubernetes.mirror import Mirror
from proxylab.control.kubernetes.pod_log import PodLog
from proxylab.control.kubernetes.registrations import Registrations
from proxylab.control.kubernetes.relay import Relay
from proxylab.control.kubernetes.settings import FOLDER, KUBECONFIG, SCHEDULER
from proxylab.control.kubernetes.workloads import WORKLOADS, Workloads
from proxylab.control.kubernetes.writer import ApiWriter
from proxylab.control.pod_program import PodProgram
from proxylab.engines.barrier import is_barrier
from proxylab.engines.fleet import Fleet
from proxylab.errors import EngineError, ProgramError
from proxylab.kernel.netlink.requests import add_address, set_loopback_up
from proxylab.kernel.netlink.socket import open_netlink
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Address
from proxylab.scenario.node_engines import EngineAction, EngineChange
from proxylab.server.added_pods import AddedPodRuns, AddedPods
from proxylab.server.api_in_pods import ApiInPods
from proxylab.server.control_plane import LabControlPlane
from proxylab.server.network import BuiltNetwork
from proxylab.server.reached_pods import ReachedPod, ReachedPods, RequestLogs
from proxylab.timing import Deadline, DeadlineExceededError, wait_until
from proxylab.traffic.runner import Runner

PROGRAM: Final = "control-plane"
"""Its name among the programs of a ``Build``."""

_NETNS: Final = "control-plane"
_LOOPBACK: Final = 1
"""The index of the loopback device, in every namespace."""

_READ_SECONDS: Final = 5.0


class Kubernetes:
    """A control plane that runs, and its relay once a client has handed a socket over.

    Args:
        programs: its processes.
        followers: what follows its API.
        pods: the pods of the lab.
        writer: writes the changes of steps into its API.
        kubectl: runs kubectl, and waits for what follows.
        api_in_pods: lets commands in pods reach its API.
        kept: the objects that the lab's store does not mirror.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        programs: Sequence[PodProgram],
        followers: Sequence[Mirror | Kubelet | LoadBalancers | Registrations],
        pods: ReachedPods,
        writer: ApiWriter,
        kubectl: Callable[[Sequence[str], float], Awaitable[None]],
        api_in_pods: ApiInPods,
        kept: KeptObjects,
    ) -> None:
        self._control_plane = control_plane
        self._programs = programs
        self._followers = followers
        self.pods: Final = pods
        self.writer: Final = writer
        self.kubectl: Final = kubectl
        self.api_in_pods: Final = api_in_pods
        self.kept: Final = kept
        self._relay: Relay | None = None

    def listen(self, listening: socket.socket) -> None:
        """Serve the API on a socket of the user's machine, in place of an earlier one."""
        if self._relay is not None:
            listening.close()
            raise ProgramError(_NETNS, "is served on a port of this machine already")
        self._relay = Relay(listening, self._control_plane.api.dial)

    async def raise_if_ended(self) -> None:
        """Raise ``ProgramError`` if one of its processes has ended, or the lab no longer follows what people write."""
        for program in self._programs:
            await program.raise_if_ended()
        for follower in self._followers:
            follower.raise_if_ended()

    async def close(self) -> None:
        """Serve it no longer."""
        if self._relay is not None:
            await self._relay.close()

    def kubeconfig(self, name: str) -> dict[str, Any]:
        """By what people of this machine reach the API. Raises ``ProgramError`` before there is a way in."""
        if self._relay is None:
            raise ProgramError(_NETNS, "is served on no port of this machine yet")
        return self._control_plane.kubeconfig(f"https://127.0.0.1:{self._relay.port}", name)


async def start_kubernetes(
    binary: str,
    network: BuiltNetwork,
    lab: LabControlPlane,
    launcher: Launcher,
    iptables: str,
    logs: RequestLogs,
    runner: Runner,
    stack: AsyncExitStack,
    *,
    takes_over: bool,
    to_join: Sequence[Node],
) -> Kubernetes:
    """Start the control plane, bring the objects of the lab's store into it, and let the store follow it.

    Args:
        binary: the program.
        network: where its nodes and pods are.
        lab: the engines, and the store that they follow.
        launcher: starts its processes.
        iptables: the variant of iptables in pods.
        logs: the logs of the pods.
        runner: serves the pods that are added, and probes them.
        stack: ends all of it.
        takes_over: whether its controllers take over the workloads of the store.
        to_join: the nodes that its API does not know yet.

    Raises:
        ProgramError: it does not start, or refuses an object.
    """
    store = lab.store
    nodes = {each.name: each for each in (*store.list(Node), *to_join)}
    known_as = f"{network.number}/{_NETNS}"
    netns = _make_netns(launcher, known_as, nodes.values(), stack)
    program = PodProgram("the control plane", netns, known_as, launcher)
    stack.push_async_callback(program.stop)
    control_plane = await start_control_plane(program, binary, _service_networks(store))
    writer = ApiWriter(control_plane.api, store, is_barrier, nodes)
    workloads = Workloads(control_plane.api, store)
    await writer.adopt()

    def reach(name: str, netns: NetNs, home: str, log: PodLog) -> ReachedPod:
        return ReachedPod(name, netns, f"{network.number}/{home}", launcher, iptables, log)

    pods = ReachedPods(network.wiring.plan, network.wiring.namespaces, store, logs, reach)
    kubelet_api = KubeletApi(_kubelet_sockets(netns, lab.choice.families), await _certificate(program), pods.find)
    stack.push_async_callback(kubelet_api.close)
    mirror = Mirror(control_plane.api, store, is_barrier, nodes, _ProxiesOfNodes(lab.fleet))
    stack.push_async_callback(mirror.stop)
    addresses = {name: each.addresses for name, each in nodes.items()}
    added = AddedPods(network.wiring, lab.choice.families, nodes, store, launcher.make_netns, runner)
    scheduler = PodProgram("the scheduler", netns, known_as, launcher)
    pools = [Pool(each.name, each.pool) for each in network.wiring.plan.balancers]
    balancers = LoadBalancers(control_plane.api, pools, writer.writing.__contains__)
    stack.push_async_callback(balancers.stop)
    registrations = Registrations(control_plane.api, nodes)
    stack.push_async_callback(registrations.stop)
    in_pods = ApiInPods(control_plane.api, launcher, control_plane.kubeconfig)
    stack.push_async_callback(in_pods.close)
    run = partial(_run, added, pods, launcher, in_pods)
    kubelet = Kubelet(control_plane.api, addresses, run, partial(_drained, store, lab.fleet, _ServingPods(store)))
    stack.push_async_callback(kubelet.stop)
    kubectl = partial(_kubectl, binary, netns, known_as, launcher, workloads, writer)
    followers = (mirror, kubelet, balancers, registrations)
    kept = KeptObjects(control_plane.api, () if takes_over else WORKLOADS)
    kubernetes = Kubernetes(control_plane, (program, scheduler), followers, pods, writer, kubectl, in_pods, kept)
    stack.push_async_callback(kubernetes.close)
    for follower in (mirror, kubelet, registrations):
        await follower.start()
    stack.push_async_callback(scheduler.stop)
    await scheduler.start((binary, *SCHEDULER), {})
    await mirror.settle()
    await writer.settle()
    if takes_over:
        await workloads.take_over()
        await writer.settle()
    await balancers.start()
    await lab.fleet.wait_synced(store.revision, Deadline.after(lab.fleet.sync_seconds))
    return kubernetes


def _make_netns(launcher: Launcher, known_as: str, nodes: Iterable[Node], stack: AsyncExitStack) -> NetNs:
    """The namespace of the control plane, which the launcher knows by that name; it has no link."""
    netns = launcher.make_netns(_NETNS)
    stack.callback(netns.close)
    with closing(open_netlink(netns)) as link:
        # The API server dials the kubelets at the addresses of their nodes, which are all here.
        own = (Address("lo", ip_interface(each)) for node in nodes for each in node.addresses)
        link.send([set_loopback_up(), *(add_address(each, _LOOPBACK) for each in own)])
    launcher.furnish(known_as, "")
    stack.callback(launcher.forget, [known_as])
    return netns


class _ProxiesOfNodes:
    """The proxies of nodes that leave a cluster and join it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def start(self, node: str) -> None:
        if not self._fleet.runs(node):
            await self._fleet.bring_up({node: EngineChange(action=EngineAction.START)})

    async def stop(self, node: str) -> None:
        await self._fleet.take_down({node: EngineChange(action=EngineAction.STOP)})


def _kubelet_sockets(netns: NetNs, families: Sequence[Family]) -> list[socket.socket]:
    return [listen_inside(netns, type(each.loopback)(0), KUBELET_PORT) for each in families]


async def _certificate(program: PodProgram) -> ssl.SSLContext:
    """The certificate of the kubelets, which is the API server's own: it does not ask whose theirs is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    deadline = Deadline.after(_READ_SECONDS)
    text = await program.output_of(("cat", f"{FOLDER}/server.crt", f"{FOLDER}/server.key"), deadline)
    file = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(file, text.encode())
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context


class _RunningPod(Struct, frozen=True):
    """A pod that was added, and what reaches it."""

    namespace: str
    name: str
    runs: AddedPodRuns
    reached: ReachedPod
    pods: ReachedPods
    launcher: Launcher
    api: ApiInPods

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        return self.runs.addresses

    async def finish(self) -> None:
        self.pods.finish(self.namespace, self.name)
        self.launcher.forget([self.reached.known_as])  # which ends its commands
        if self.runs.has_own_network:
            await self.api.leave(self.runs.netns)
        await self.runs.end()

    async def end(self) -> None:
        if not self.reached.is_gone:
            await self.finish()
        self.pods.remove(self.namespace, self.name)


async def _run(
    added: AddedPods, pods: ReachedPods, launcher: Launcher, api: ApiInPods, document: Document
) -> _RunningPod:
    namespace, name = document["metadata"]["namespace"], document["metadata"]["name"]
    runs = await added.run(document)
    reached = pods.add(namespace, name, runs.name, runs.netns)
    launcher.furnish(reached.known_as, "")
    return _RunningPod(namespace, name, runs, reached, pods, launcher, api)


async def _kubectl(
    binary: str,
    netns: NetNs,
    known_as: str,
    launcher: Launcher,
    workloads: Workloads,
    writer: ApiWriter,
    words: Sequence[str],
    seconds: float,
) -> None:
    """Run kubectl, and return when the controllers have done all that follows, and the lab has heard of it.

    Each of the two may take that many seconds.

    Raises:
        ProgramError: kubectl fails, or something is left to do for too long.
    """
    argv = (binary, "kubectl", f"--kubeconfig={KUBECONFIG}", *words)
    deadline, environment = Deadline.after(seconds), {"HOME": FOLDER}
    try:
        done = await launcher.run(netns, argv, netns_name=known_as, environment=environment, deadline=deadline)
    except TimeoutError:
        what = f"has not ended after {seconds:.0f} s: {shlex.join(words)}"
        raise ProgramError("kubectl", what) from None
    if done.status != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise ProgramError("kubectl", f"ended with status {done.status}: {shlex.join(words)}", said)
    await workloads.come_to_rest(seconds)
    await writer.settle()


class _ServingPods:
    """The pods to which ready endpoints lead, by namespace and name: pods on the host network share addresses.

    It looks once at each revision of the store: of many pods that end at once, each asks all the time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._revision = -1
        self._found: frozenset[tuple[str, str]] = frozenset()

    def __contains__(self, pod: tuple[str, str]) -> bool:
        if self._revision != self._store.revision:
            slices = self._store.list(EndpointSlice)
            self._found = frozenset(
                (each.namespace, end.target) for each in slices for end in each.endpoints if end.ready
            )
            self._revision = self._store.revision
        return pod in self._found


async def _drained(
    store: Store, fleet: Fleet, serving: _ServingPods, namespace: str, name: str, deadline: Deadline
) -> None:
    """Return when the proxies have taken out all endpoints of a pod, or at the deadline."""
    with suppress(DeadlineExceededError, EngineError):
        await wait_until(lambda: (namespace, name) not in serving, deadline, "no ready endpoint of a pod that ends")
        await fleet.wait_synced(store.revision, deadline)


def _service_networks(store: Store) -> tuple[IPNetwork, ...]:
    return next(each.cidrs for each in store.list(ServiceCIDR))
