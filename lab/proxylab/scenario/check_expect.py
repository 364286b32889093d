"""The checks of ``expect`` against the rest of the probe and the scenario, and whether the lab can prove it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from proxylab.addresses import Family, Transport
from proxylab.cluster.objects import Service
from proxylab.scenario.document import Location, Problems, listed, shown
from proxylab.scenario.expect import (
    SOURCES,
    Backend,
    ConntrackExpect,
    Entries,
    Expect,
    Masqueraded,
    NodeDevice,
    ReplyByBackend,
    Shares,
    SourceByBackend,
)
from proxylab.scenario.inventory import Inventory, Subject
from proxylab.scenario.pods import PodGroup
from proxylab.scenario.probes import PodTarget, Send, ServiceTarget
from proxylab.scenario.syntax import is_address
from proxylab.scenario.words import ROUTER, ErrorKind, Frontend, Outcome, PodWay, Reply, Spread
from proxylab.statistics import flows_needed, flows_needed_for, flows_to_hit_all, flows_to_stick


def check_expectations(subject: Subject) -> None:
    """Note why a probe's expectation, or one of its exceptions, cannot hold or cannot be judged."""
    if subject.probe.expect is not None:
        _check(subject, subject.probe.expect, subject.location["expect"])
    for index, exception in enumerate(subject.probe.exceptions):
        if exception is not None:
            _check(subject, exception.expect, subject.location["except"][index]["expect"])


def _check(subject: Subject, expect: Expect, location: Location) -> None:
    inventory, problems = subject.inventory, subject.problems
    _check_outcome(expect, location, problems)
    if subject.echo:
        _check_echo(expect, location, problems)
    _check_http(subject, expect, location)
    check_source(expect.source, location["source"], inventory, problems)
    if isinstance(expect.source, SourceByBackend):
        without = [name for name in expect.backend_names if name not in expect.source.of]
        if without:
            what = f"has no entry for {listed(without)}, which backends allows"
            problems.add(location["source"].spot, what, allowed="add it, or remove the backend")
    target = subject.probe.target
    if isinstance(target, PodTarget) and target.via is PodWay.POD_IP and expect.reply is Reply.UNTRANSLATED:
        what = "a pod that is dialled by its own address answers from there, translated or not"
        problems.add(location["reply"].spot, what, allowed="remove the key")
    replies = expect.reply.of.values() if isinstance(expect.reply, ReplyByBackend) else (expect.reply,)
    send = subject.probe.send
    if Reply.NONE in replies and send is not None and send.protocol not in (None, Transport.UDP):
        what = f"the pod's kernel answers {send.protocol} by itself"
        problems.add(location["reply"].spot, what, allowed="send UDP, or remove the key")
    if isinstance(expect.reply, ReplyByBackend):
        _check_names(expect.reply.of, location["reply"], inventory, problems)
    _check_error(expect, location, inventory, problems)
    if expect.at is not None:
        _check_end(expect, expect.at.partition("/")[0], location["at"], inventory, problems)
    if expect.conntrack is not None:
        check_conntrack(expect.conntrack, location["conntrack"], inventory, problems)
    _check_backends(subject, expect, location["backends"])
    if expect.outcome is Outcome.DELIVERED and expect.spread is not None:
        _check_spread(subject, expect, location["spread"])


def _check_end(expect: Expect, name: str, location: Location, inventory: Inventory, problems: Problems) -> None:
    if name not in inventory.senders:
        inventory.refuse(location.spot, name, "a node, pod or host", inventory.senders, problems)
    elif name not in inventory.nodes and expect.outcome is Outcome.REJECTED:
        what = f"{name} is not a node: only the rules of nodes reject"
        problems.add(location.spot, what, allowed=f"allowed: {listed(inventory.nodes)}")


def _check_error(expect: Expect, location: Location, inventory: Inventory, problems: Problems) -> None:
    """Note an unknown sender of an ICMP error, a code of another kind, and an outcome beside it."""
    error, at, senders = expect.error, location["error"], (*inventory.senders, ROUTER)
    if error is None:
        return
    if error.sent_by and error.sent_by not in senders:
        what = f"{shown(error.sent_by)} is no node, pod, outside host or {ROUTER}"
        problems.add(at["by"].spot, what, allowed=f"allowed: {listed(senders)}", word=error.sent_by, known=senders)
    if error.code is not None and error.kind is not ErrorKind.UNREACHABLE:
        problems.add(at["code"].key, f"{error.kind} has no code", allowed="allowed only with unreachable")
    if location["outcome"].exists:
        what = f"an outcome of {expect.outcome} and an ICMP error about the same packet contradict each other"
        problems.add(at.key, what, allowed="leave one of the two out; of rejected flows icmp says which error came")


def check_source(source: object, location: Location, inventory: Inventory, problems: Problems) -> None:
    """Note a source address of an unknown node, and the source at an unknown backend."""
    if isinstance(source, NodeDevice) and source.node not in inventory.nodes:
        inventory.refuse(location["node"].spot, source.node, "a node", inventory.nodes, problems)
    if isinstance(source, SourceByBackend):
        _check_names(source.of, location, inventory, problems)


def _check_names(names: Iterable[str], location: Location, inventory: Inventory, problems: Problems) -> None:
    """Note keys of a mapping by backend that name none."""
    for name in names:
        if name not in inventory.backends:
            inventory.refuse(location[name].key, name, "a backend", inventory.backends_as_written, problems)


def _check_outcome(expect: Expect, location: Location, problems: Problems) -> None:
    """Note keys that an outcome needs and keys that it cannot have."""
    if not location["outcome"].exists:
        if expect.http is None and expect.also is None and expect.error is None:
            what = "is missing, and `also: promises`, which stands for it"
            problems.add(location["outcome"].key, what, allowed=f"allowed: {', '.join(Outcome)}")
        return
    if expect.icmp is not None and expect.outcome is not Outcome.REJECTED:
        what = f"no ICMP error is due when flows are {expect.outcome}"
        problems.add(location["icmp"].key, what, allowed="allowed only with rejected")
    if expect.outcome is not Outcome.DELIVERED:
        for key in [key for key in ("backends", "source", "spread", "reply", "http") if location[key].exists]:
            what = f"nothing arrives when flows are {expect.outcome}"
            problems.add(location[key].key, what, allowed="allowed only with delivered")
        return
    if expect.source is None and expect.http is None and expect.also is None:
        what = "is missing: with delivered, give the source that the backend sees"
        problems.add(location["source"].key, what, allowed=f"allowed: {SOURCES}")
    if expect.at is not None:
        problems.add(location["at"].key, "a delivered flow ends at its backend", allowed="remove the key")


def _check_echo(expect: Expect, location: Location, problems: Problems) -> None:
    """Note results that no echo request can have."""
    if expect.outcome is Outcome.REFUSED:
        what = "a network stack does not refuse an echo request"
        problems.add(location["outcome"].spot, what, allowed="allowed: delivered, rejected, dropped, untranslated")
    if expect.http is not None:
        problems.add(location["http"].key, "an echo request carries no HTTP", allowed="remove the key")
    sources = expect.source.of.values() if isinstance(expect.source, SourceByBackend) else (expect.source,)
    if any(isinstance(each, Masqueraded) for each in sources):
        what = "no Service translates an echo request, so nothing masquerades it"
        problems.add(location["source"].spot, what, allowed="allowed: preserved, an address, or {node, device}")
    for index, backend in enumerate(expect.backends or ()):
        if backend.port is not None:
            what = "an echo request has no port"
            problems.add(location["backends"][index].spot, what, allowed=f"allowed: {backend.name}")


def _check_http(subject: Subject, expect: Expect, location: Location) -> None:
    target, problems = subject.probe.target, subject.problems
    via = target.via if isinstance(target, ServiceTarget) else None
    if (
        via is Frontend.HEALTH_CHECK_NODE_PORT
        and expect.http is None
        and location["outcome"].value == Outcome.DELIVERED
    ):
        problems.add(
            location["http"].key, "is missing: a health-check node port answers by HTTP", allowed="{status: 200}"
        )
    if (
        expect.http is not None
        and expect.http.local_endpoints is not None
        and via is not Frontend.HEALTH_CHECK_NODE_PORT
    ):
        what = "only a health-check node port reports local endpoints"
        problems.add(location["http"]["localEndpoints"].key, what, allowed="remove the key")
    if expect.http is None:
        return
    for key in ("backends", "source", "forwardedFor"):
        if location["http"][key].exists and via is not Frontend.INGRESS:
            problems.add(location["http"][key].key, "only a request to an Ingress has it", allowed="remove the key")
    for name in expect.http.backends or ():
        if name not in subject.inventory.pods:
            at = _written(location["http"]["backends"], name)
            subject.inventory.refuse(at.spot, name, "a backend", subject.inventory.backends_as_written, problems)


def _check_backends(subject: Subject, expect: Expect, location: Location) -> None:
    inventory, send, backends = subject.inventory, subject.probe.send, expect.backends or ()
    seen: dict[str, list[Backend]] = {}
    for each in backends:
        at = _written(location, str(each))
        earlier = seen.setdefault(each.name, [])
        if each.name not in inventory.backends:
            if subject.pods is not None:  # else there may be pods that the file does not show
                inventory.refuse(at.spot, each.name, "a backend", inventory.backends_as_written, subject.problems)
        elif each in earlier:
            subject.problems.add(at.spot, f"{each} appears twice", allowed="remove one of the two")
        elif earlier and None in (each.port, *(other.port for other in earlier)):
            what = f"{each.name} appears with a port and without one, which stands for any port"
            subject.problems.add(at.spot, what, allowed="give the port in each, or in none")
        _check_port(subject, each, at)
        earlier.append(each)
    if send is not None and send.flows is not None and len(backends) > 1 and not subject.names_pods:
        _check_reach(subject, send.flows, len(backends), expect, location)


def _check_reach(subject: Subject, flows: int, backends: int, expect: Expect, location: Location) -> None:
    """Refuse flows that cannot reach each backend, and warn of those that miss one by chance."""
    needed = f"needed: {flows_to_hit_all(backends)}, or remove send.flows"
    by_client = expect.spread is not None or (subject.service and subject.service.affinity_timeout is not None)
    if flows < backends:
        what = f"send.flows is {flows}, too few to reach each of {backends} backends"
        subject.problems.add(location.spot, what, allowed=needed)
    elif flows < flows_to_hit_all(backends) and not by_client:
        what = f"send.flows is {flows}: by chance they may miss one of {backends} backends"
        subject.problems.warn(subject.location["send"]["flows"].spot, what, allowed=needed)


def _written(location: Location, name: str) -> Location:
    """The last entry of a list with that text; the list for a pod that the name of a group or workload stands for."""
    entries = location.value if isinstance(location.value, list) else []
    found = [index for index, entry in enumerate(entries) if entry == name]
    return location[found[-1]] if found else location


def _check_port(subject: Subject, backend: Backend, location: Location) -> None:
    """Note a port on which the pod does not listen. Hosts listen where the author's slices lead."""
    pod, send = (subject.pods or {}).get(backend.name), subject.probe.send
    if pod is None or backend.port is None:
        return
    if subject.echo:
        return
    protocol = send and send.protocol and send.protocol.served
    ports = [each.port for each in pod.ports if protocol in (None, each.protocol)]
    if backend.port not in ports:
        what = f"{backend.name} does not listen on port {backend.port}"
        allowed = f"allowed: {listed(list(map(str, ports)))}" if ports else "add it to the pod's ports"
        subject.problems.add(location.spot, what, allowed=allowed)


def _check_spread(subject: Subject, expect: Expect, location: Location) -> None:
    target, send, problems = subject.probe.target, subject.probe.send, subject.problems
    if target is None or send is None:
        return
    if not isinstance(target, ServiceTarget):
        problems.add(location.key, "only a Service spreads flows", allowed="remove the key")
        return
    if subject.names_pods:
        what = "the client, not the Service, picks one of the addresses of a headless Service's name"
        problems.add(location.key, what, allowed="remove the key")
        return
    if _check_affinity(subject, expect, target, location):
        return
    if isinstance(expect.spread, Shares):
        _check_shares(subject, expect.spread.of, expect.backend_names, location)
    if isinstance(expect.spread, Shares):
        shares = tuple(expect.spread.of.values())
        _check_power(subject, subject.flows_for(expect), len(shares), flows_needed_for(shares), location)
        return
    known = len(expect.backend_names) or _endpoints(subject, target)
    if expect.spread is Spread.STICKY:
        _check_sticking(subject, send, expect, location)
    elif known is not None:
        _check_power(subject, subject.flows_for(expect), known, flows_needed(max(known, 1)), location)


def _check_affinity(subject: Subject, expect: Expect, target: ServiceTarget, location: Location) -> bool:
    """Whether the spread contradicts the Service's session affinity; notes it."""
    service = subject.service
    if service is None:
        return False
    if expect.spread is Spread.STICKY and service.affinity_timeout is None:
        what = f"Service {service.name} has no session affinity, so flows do not stick to a backend"
        subject.problems.add(location.spot, what, allowed="needed: sessionAffinity: ClientIP")
        return True
    many = subject.probe.source is not None and subject.probe.source.all_addresses
    if expect.spread is not Spread.STICKY and service.affinity_timeout is not None and not many:
        what = f"Service {service.name} has sessionAffinity ClientIP: all flows of a client go to one backend"
        subject.problems.add(location.spot, what, allowed="allowed: sticky")
        return True
    return False


def _check_shares(subject: Subject, shares: Mapping[str, float], backends: Sequence[str], location: Location) -> None:
    inventory = subject.inventory
    for name in shares:
        if name not in inventory.backends:
            inventory.refuse(location[name].key, name, "a backend", inventory.backends_as_written, subject.problems)
        elif backends and name not in backends:
            subject.problems.add(
                location[name].key, f"{name} is not among the backends", allowed=f"allowed: {listed(backends)}"
            )


def _check_power(subject: Subject, flows: int, count: int, needed: int, location: Location) -> None:
    if subject.pods is None:  # a name may stand for more pods than the file shows
        return
    if count < 2:
        subject.problems.add(location.spot, f"the number of backends is {count}", allowed="needed: two or more")
    elif flows < needed:
        what = f"send.flows is {flows}, too few to show an uneven spread over {count} backends"
        _refuse_flows(subject, location, what, needed)


def _check_sticking(subject: Subject, send: Send, expect: Expect, location: Location) -> None:
    backends = expect.backend_names
    if subject.pods is None:
        return
    if len(backends) < 2:
        what = "sticky needs expect.backends"
        subject.problems.add(location.spot, what, allowed="needed: two backends or more")
    elif (flows := subject.flows_for(expect)) < (needed := flows_to_stick(len(backends)) + _clients(subject) - 1):
        what = f"send.flows is {flows}: by chance they may all go to one of {len(backends)} backends"
        _refuse_flows(subject, location, what, needed)


def _clients(subject: Subject) -> int:
    """The number of source addresses of the flows."""
    source = subject.probe.source
    host = subject.parts.hosts.get(source.name) if source is not None and source.all_addresses else None
    if host is None:
        return 1
    return max(Counter(map(Family.of, host.fixed_addresses)).values(), default=host.chosen_addresses)


def _refuse_flows(subject: Subject, location: Location, what: str, needed: int) -> None:
    flows = subject.location["send"]["flows"]
    subject.problems.add(flows.spot if flows.exists else location.spot, what, allowed=f"needed: {needed}")


def _endpoints(subject: Subject, target: ServiceTarget) -> int | None:
    """The number of ready endpoints of the Service, or ``None`` if it is unknown."""
    service = subject.service
    if service is None or subject.pods is None or subject.inventory.doubtful or not subject.manifests.complete:
        return None
    if (given := subject.manifests.endpoints(target.id)) is not None:
        return given
    return _ready_pods(service, subject.pods)


def _ready_pods(service: Service, pods: Mapping[str, PodGroup]) -> int:
    """How many of the pods are ready endpoints of the Service."""
    if not service.selector:
        return 0
    wanted = service.selector.items()
    return sum(
        pod.present
        and pod.namespace == service.namespace
        and wanted <= pod.labels.items()
        and ((pod.ready and not pod.terminating) or service.publish_not_ready_addresses)
        for pod in pods.values()
    )


def check_conntrack(expect: ConntrackExpect, location: Location, inventory: Inventory, problems: Problems) -> None:
    """Note unknown names in an expectation of connection tracking, and one that expects nothing."""
    if expect.node is not None and expect.node not in inventory.nodes:
        inventory.refuse(location["node"].spot, expect.node, "a node", inventory.nodes, problems)
    if expect.some is None and expect.none is None:
        problems.add(location.spot, "expects nothing", allowed="needed: some, none, or both")
    if expect.some is not None and expect.some == expect.none:
        problems.add(
            location["none"].spot, "contradicts some, which needs the same entries", allowed="remove one of the two"
        )
    for key, entries in (("some", expect.some), ("none", expect.none)):
        if entries is not None:
            _check_entries(entries, location[key], inventory, problems)


def _check_entries(entries: Entries, location: Location, inventory: Inventory, problems: Problems) -> None:
    for key, name in (("replyFrom", entries.reply_from), ("originalFrom", entries.original_from)):
        if name is not None and not is_address(name) and name not in inventory.senders:
            inventory.refuse(location[key].spot, name, "a node, pod or host", inventory.senders, problems)
