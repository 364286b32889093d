"""``Inventory``: every name of a scenario; and ``Subject``: a probe with the scenario around it.

Nodes, pods and outside hosts share one name space. The module checks names against each other, and the entries of
``spec.pods``.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Family, Protocol, Transport
from proxylab.cluster.objects import Service
from proxylab.scenario.document import Location, Problems, Spot, listed, shown
from proxylab.scenario.expect import Expect
from proxylab.scenario.manifests import Manifests, implied_ports, note_on_implied_ports
from proxylab.scenario.parts import Parts, ProbeParts
from proxylab.scenario.pods import ListeningPort, PodGroup
from proxylab.scenario.probes import ServiceTarget
from proxylab.scenario.services import DEFAULT_NAMESPACE
from proxylab.scenario.syntax import is_label
from proxylab.scenario.targets import unknown_name
from proxylab.scenario.words import Frontend

MOST_PODS = 1000
"""Each pod is a network namespace with its own link."""


class Inventory(Struct, frozen=True):
    """Every name of a scenario.

    Attributes:
        pods: every single pod, with its entry.
        groups: the entries with replicas, with the names of their pods.
        workloads: the workloads as an author writes them (NAME, or NAMESPACE/NAME in another namespace), with all pods
            that the scenario makes for each.
        daemons: the programs that listen on nodes by name, with their nodes.
        doubtful: entries of ``spec.pods`` that are not well-formed, or too many: their pods are unknown.
    """

    nodes: tuple[str, ...]
    pods: Mapping[str, str]
    groups: Mapping[str, tuple[str, ...]]
    workloads: Mapping[str, tuple[str, ...]]
    hosts: tuple[str, ...]
    daemons: Mapping[str, tuple[str, ...]]
    doubtful: frozenset[str]

    @property
    def senders(self) -> tuple[str, ...]:
        """Every name that a probe can send from."""
        return (*self.pods, *self.hosts, *self.nodes)

    @property
    def backends(self) -> tuple[str, ...]:
        """Every name that can be a backend; outside hosts can by the author's EndpointSlices."""
        return (*self.pods, *self.hosts, *(name for name, nodes in self.daemons.items() if len(nodes) == 1))

    @property
    def backends_as_written(self) -> tuple[str, ...]:
        """The names of backends for a message: one name for all pods of a workload, which have long names."""
        together = {each for members in self.workloads.values() for each in members}
        single = (each for each in self.pods if each not in together)
        return (*single, *self.groups, *self.workloads, *self.daemons, *self.hosts)

    def is_doubtful(self, name: str) -> bool:
        """Whether that may be the name of a pod from a malformed entry."""
        return name in self.doubtful or name.rpartition("-")[0] in self.doubtful

    def refuse(self, spot: Spot, name: str, kind: str, known: Iterable[str], problems: Problems) -> None:
        """Note that ``name`` is not of that kind: of which it is, or a suggestion."""
        known = tuple(known)
        if len(nodes := self.daemons.get(name, ())) > 1:
            what = f"{name} is a daemon of {listed(nodes)}"
            problems.add(spot, what, allowed="give the daemon of each node a name of its own")
        elif name in self.groups:
            problems.add(spot, f"{name} stands for {listed(self.groups[name])}", allowed="name one of them")
        elif other := self._kind(name):
            problems.add(spot, f"{name} is {other}, not {kind}", allowed=f"allowed: {listed(known)}")
        elif not self.is_doubtful(name):
            problems.add(spot, **unknown_name(name, kind, known).problem)

    def _kind(self, name: str) -> str:
        if name in self.nodes:
            return "a node"
        if name in self.pods:
            return "a pod"
        return "an outside host" if name in self.hosts else ""


class Subject(Struct, frozen=True):
    """One probe, and its scenario at the moment when the lab sends the probe.

    ``pods`` are the single pods by name; ``None`` if a mistake in the file hides them.
    """

    probe: ProbeParts
    location: Location
    parts: Parts
    inventory: Inventory
    manifests: Manifests
    pods: Mapping[str, PodGroup] | None
    problems: Problems

    @property
    def echo(self) -> bool:
        """Whether the probe sends echo requests."""
        return self.probe.send is not None and self.probe.send.protocol is Transport.ICMP

    @property
    def dials_a_port(self) -> bool:
        """Whether the probe dials a port; ``False`` for echo requests, and if a mistake hides what it sends."""
        return self.probe.send is not None and not self.echo

    @property
    def protocol(self) -> Transport | None:
        """The protocol that the author names."""
        return None if self.probe.send is None else self.probe.send.protocol

    @property
    def service(self) -> Service | None:
        """The Service that the probe dials; ``None`` if it dials none, or if a mistake hides the Service."""
        target = self.probe.target
        return self.manifests.services.get(target.id) if isinstance(target, ServiceTarget) else None

    @property
    def names_pods(self) -> bool:
        """Whether the probe dials the name of a headless Service, which resolves to the pods' own addresses."""
        target, service = self.probe.target, self.service
        by_name = isinstance(target, ServiceTarget) and target.via is Frontend.DNS_NAME
        return by_name and service is not None and service.headless

    def flows_for(self, expect: Expect | None) -> int:
        """How many flows the probe sends with that expectation; 1 if a mistake hides what it sends."""
        send = self.probe.send
        return 1 if send is None else send.flows_for(expect, names_pods=self.names_pods)


def with_objects(parts: Parts, manifests: Manifests, problems: Problems) -> Parts:
    """The parts, with the Pods and Nodes from manifests added.

    A Node adds labels, taints and addresses to the node of that name, or is a further node.
    """
    pods, nodes, in_manifests = dict(parts.pods), dict(parts.nodes), dict(parts.in_manifests)
    for name, pod in manifests.pods.items():
        location = pod.location["metadata"]["name"]
        if name in pods:
            line = parts.at("pods", name).key.position.line
            problems.add(
                location.spot,
                f"spec.pods has a pod called {name} too, in line {line}",
                allowed="rename one of the two",
            )
            continue
        entry = pod.entry
        if entry is not None and not entry.ports:
            ports = implied_ports(manifests, entry.namespace, entry.labels)
            if ports:
                manifests.notes.append(note_on_implied_ports(f"Pod {entry.namespace}/{name}", ports))
            entry = replace(entry, ports=tuple(ListeningPort(port=each.port, protocol=each.protocol) for each in ports))
        pods[name], in_manifests["pods", name] = entry, location
    for name, node in manifests.nodes.items():
        own = nodes.get(name)
        if name not in nodes:
            nodes[name], in_manifests["nodes", name] = node.entry, node.location["metadata"]["name"]
        elif own is not None and node.entry is not None:
            update = {
                "labels": {**node.entry.labels, **own.labels},
                "taints": own.taints or node.entry.taints,
                "terminating": own.terminating or node.entry.terminating,
                "internal_ips": own.internal_ips or node.entry.internal_ips,
            }
            nodes[name] = replace(own, **update)
    return replace(parts, pods=pods, nodes=nodes, in_manifests=in_manifests)


def take_inventory(parts: Parts, problems: Problems) -> Inventory:
    """Collect the names of a scenario, and check their entries."""
    sound = _within_bounds(parts, problems)
    pods: dict[str, str] = {}
    for name, pod in sound.items():
        for each in pod.pod_names:
            pods.setdefault(each, name)
    inventory = Inventory(
        nodes=tuple(parts.nodes),
        pods=pods,
        groups={name: pod.pod_names for name, pod in sound.items() if pod.replicas is not None},
        workloads=_workloads(sound.values()),
        hosts=tuple(parts.hosts),
        daemons=_daemons(parts),
        doubtful=frozenset(parts.pods.keys() - sound.keys()),
    )
    _check_names(parts, sound, problems)
    for name, pod in sound.items():
        _check_pod(name, pod, parts.at("pods", name), inventory, problems)
    return inventory


def _workloads(pods: Iterable[PodGroup]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for pod in (each for each in pods if each.owner):
        written = pod.owner.partition(" ")[2].removeprefix(f"{DEFAULT_NAMESPACE}/")
        found[written] = (*found.get(written, ()), pod.name)
    return found


def _daemons(parts: Parts) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for node in filter(None, parts.nodes.values()):
        for daemon in node.daemons:
            found[daemon.name] = (*found.get(daemon.name, ()), node.name)
    return found


def _within_bounds(parts: Parts, problems: Problems) -> dict[str, PodGroup]:
    """The well-formed entries of ``spec.pods``, up to the greatest number of pods."""
    count = 0
    sound: dict[str, PodGroup] = {}
    for name, pod in parts.pods.items():
        count += 1 if pod is None else pod.replicas or 1
        if count > MOST_PODS:
            location = parts.at("pods", name)
            problems.add(location.key, f"this makes {count} pods", allowed=f"allowed: {MOST_PODS} in all")
            break
        if pod is not None:
            sound[name] = pod
    return sound


def _check_names(parts: Parts, sound: Mapping[str, PodGroup], problems: Problems) -> None:
    owners: dict[str, tuple[str, Location]] = {}
    bearers = [(name, "a node", parts.at("nodes", name)) for name in parts.nodes]
    for name, pod in sound.items():
        location = parts.at("pods", name)
        bearers.append((name, "a pod" if pod.replicas is None else "a group of pods", location))
        if pod.replicas is not None:
            bearers += [(each, f"a pod of {name}", location) for each in pod.pod_names]
    bearers += [(name, "an outside host", parts.at("hosts", name)) for name in parts.hosts]
    for node in filter(None, parts.nodes.values()):
        at = parts.at("nodes", node.name)["daemons"]
        bearers += [(each.name, "a daemon", at[each.name]) for each in node.daemons]
    for name, kind, location in bearers:
        first, where = owners.setdefault(name, (kind, location))
        if where is location or first == kind == "a daemon":  # nodes often run the same daemon
            continue
        problems.add(
            location.key,
            f"{name}, {kind}, has the name of {first} in line {where.key.position.line}",
            allowed="nodes, pods, hosts and daemons share one name space",
        )


def _check_pod(name: str, pod: PodGroup, location: Location, inventory: Inventory, problems: Problems) -> None:
    longest = pod.pod_names[-1]
    if is_label(name) and not is_label(longest):
        problems.add(
            location.key,
            f"the pod {shown(longest)} would have a name of {len(longest)} characters",
            allowed="allowed: 63",
        )
    for index, node in enumerate(pod.nodes):
        if node not in inventory.nodes:
            inventory.refuse(location["nodes"][index].spot, node, "a node", inventory.nodes, problems)
    _check_addresses(pod, location, problems)
    _check_ports(pod, location, problems)


def _check_addresses(pod: PodGroup, location: Location, problems: Problems) -> None:
    """Check a pod's fixed addresses, and the keys that depend on its network namespace."""
    if pod.addresses and (pod.replicas is not None or pod.host_network):
        what = (
            "pods on the host network have the node's addresses" if pod.host_network else "replicas differ in address"
        )
        problems.add(location["addresses"].key, what, allowed="remove the key")
    families = [Family.of(address) for address in pod.addresses]
    for index, family in enumerate(families):
        if family in families[:index]:
            problems.add(location["addresses"][index].spot, f"a second {family} address", allowed="one of each family")
    if pod.shared_netns and pod.replicas is None:
        problems.add(
            location["sharedNetns"].key, "needs replicas: one pod has nothing to share", allowed="add replicas"
        )
    if pod.shared_netns and pod.host_network:
        problems.add(location["sharedNetns"].key, "pods on the host network share it already", allowed="remove the key")
    if pod.netem is not None and (pod.host_network or pod.shared_netns):
        what = "pods on the host network use its link" if pod.host_network else "these pods share one link"
        problems.add(location["netem"].key, what, allowed="remove the key")
    if pod.hostname and (pod.replicas is not None or not pod.subdomain):
        what = "replicas use their own names" if pod.subdomain else "a hostname needs a subdomain"
        problems.add(location["hostname"].key, what, allowed="allowed: for a single pod with a subdomain")
    check_readiness(pod, location, problems)


def check_readiness(pod: PodGroup, location: Location, problems: Problems) -> None:
    """Note a pod at ``location`` with sysctls that it cannot have, or with ``serving`` against ``ready``."""
    if pod.sysctls and pod.host_network:
        what = "pods on the host network have the node's sysctls"
        problems.add(location["sysctls"].key, what, allowed="set them in spec.nodes")
    if pod.serving is not None and not pod.terminating and pod.serving != pod.ready:
        what = f"a pod that does not terminate is serving if it is ready, and ready is {shown(pod.ready)}"
        problems.add(location["serving"].spot, what, allowed="change ready, or set terminating: true")


def _check_ports(pod: PodGroup, location: Location, problems: Problems) -> None:
    numbers: set[tuple[str, int]] = set()
    names: set[str] = set()
    for index, port in enumerate(pod.ports):
        at = location["ports"][index]
        if (port.protocol, port.port) in numbers:
            problems.add(at.spot, f"{port.protocol} port {port.port} appears twice", allowed="remove one of the two")
        numbers.add((port.protocol, port.port))
        if port.silent and (port.protocol is not Protocol.UDP or pod.program is not None):
            what = "is for the lab's own program at a port of UDP; the kernel itself answers the other protocols"
            problems.add(at["silent"].spot, what, allowed="remove the key")
        if port.name in names:
            problems.add(at["name"].spot, f"{shown(port.name)} appears twice", allowed="the names of ports are unique")
        names |= {port.name} if port.name else set()
