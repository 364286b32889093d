"""``spec`` of a Pod and of a pod template: its ports, where it may run, and how long it takes to begin and to end.

Pods have hundreds of keys. The records know those that matter to a Service proxy or to the lab, and accept all others.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import field

from proxylab.addresses import Protocol
from proxylab.cluster.documents import SIDECAR
from proxylab.cluster.placement import Constraints, Requirement, Toleration, TopologySpread
from proxylab.scenario.keys import Between, Key, Manifest
from proxylab.scenario.pods import ListeningPort
from proxylab.scenario.syntax import Address, PortName, PortNumber

Seconds = Annotated[int, Between(0, 3600)]
_HostPort = Annotated[int, Between(0, 65535)]


class _Operator(StrEnum):
    """``operator`` of a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


class _Tolerating(StrEnum):
    """``operator`` of a toleration."""

    EQUAL = "Equal"
    EXISTS = "Exists"


class _Unsatisfiable(StrEnum):
    """``whenUnsatisfiable``."""

    WAIT = "DoNotSchedule"
    IGNORE = "ScheduleAnyway"


class Loose(Manifest, frozen=True):
    """A mapping with further keys, which the lab ignores."""

    loose = True


class _ContainerPort(Loose, frozen=True, kw_only=True):
    """One port of a container."""

    name: Annotated[PortName, Key("The name that a Service's targetPort may use.")] = ""
    port: Annotated[PortNumber, Key("The port.", alias="containerPort")]
    protocol: Annotated[Protocol, Key("The transport protocol.")] = Protocol.TCP
    host_port: Annotated[_HostPort, Key("The port of the node that leads to it, too; 0 for none.")] = 0
    host_ip: Annotated[Address | None, Key("The address of the node at which hostPort is served.", alias="hostIP")] = (
        None
    )


class _Probe(Loose, frozen=True):
    """A readiness or startup probe. In a lab it succeeds as soon as Kubernetes may ask."""

    initial_delay: Annotated[Seconds, Key("How long after its start.", alias="initialDelaySeconds")] = 0
    period: Annotated[Seconds, Key("The time between two of them.", alias="periodSeconds")] = 10
    successes: Annotated[Seconds, Key("How many successes it needs.", alias="successThreshold")] = 1

    @property
    def seconds(self) -> int:
        """The shortest time to its success."""
        return self.initial_delay + max(0, self.successes - 1) * self.period


class _Container(Loose, frozen=True):
    """One container."""

    command: Annotated[tuple[str, ...], Key("What it runs, for spec.commands.")] = ()
    args: Annotated[tuple[str, ...], Key("The arguments of its command.")] = ()
    ports: Annotated[tuple[_ContainerPort, ...], Key("The ports it listens on.")] = ()
    readiness_probe: Annotated[_Probe | None, Key("When it is ready.")] = None
    startup_probe: Annotated[_Probe | None, Key("When it has started.")] = None
    restart_policy: Annotated[str, Key("Always lets an init container run beside the others, as a sidecar.")] = ""

    @property
    def seconds(self) -> int:
        """The time from its start until it is ready."""
        return sum(each.seconds for each in (self.startup_probe, self.readiness_probe) if each is not None)


class _Requirement(Manifest, frozen=True, kw_only=True):
    """One expression of a selector."""

    key: Annotated[str, Key("The label's key.")]
    operator: Annotated[_Operator, Key("How to compare.")]
    values: Annotated[tuple[str, ...], Key("The values to compare with.")] = ()

    @property
    def requirement(self) -> Requirement:
        """What the scheduler reads."""
        return Requirement(key=self.key, operator=self.operator, values=self.values)


def _equal(labels: Mapping[str, str]) -> tuple[Requirement, ...]:
    return tuple(Requirement(key=key, operator=_Operator.IN, values=(value,)) for key, value in labels.items())


class LabelSelector(Manifest, frozen=True):
    """``metav1.LabelSelector``."""

    match_labels: Annotated[Mapping[str, str], Key("Labels that must be there.")] = field(default_factory=dict)
    match_expressions: Annotated[tuple[_Requirement, ...], Key("Further requirements.")] = ()

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Everything that it requires."""
        return (*_equal(self.match_labels), *(each.requirement for each in self.match_expressions))


class _Term(Loose, frozen=True):
    """One term of a node selector."""

    match_expressions: Annotated[tuple[_Requirement, ...], Key("Requirements of the node's labels.")] = ()


class _NodeSelector(Manifest, frozen=True):
    """``requiredDuringSchedulingIgnoredDuringExecution`` of ``nodeAffinity``."""

    terms: Annotated[tuple[_Term, ...], Key("A node needs to satisfy one of them.", alias="nodeSelectorTerms")] = ()


class _NodeAffinity(Loose, frozen=True):
    """``affinity.nodeAffinity``."""

    required: Annotated[
        _NodeSelector, Key("What a node must be.", alias="requiredDuringSchedulingIgnoredDuringExecution")
    ] = _NodeSelector()


class _Affinity(Loose, frozen=True):
    """``affinity``. The lab ignores that of pods to each other, and all preferences."""

    node_affinity: Annotated[_NodeAffinity, Key("Where the pod may run.")] = _NodeAffinity()


class _Toleration(Loose, frozen=True):
    """One entry of ``tolerations``."""

    key: Annotated[str, Key("The taint's key.")] = ""
    operator: Annotated[_Tolerating, Key("Whether the values must be equal.")] = _Tolerating.EQUAL
    value: Annotated[str, Key("The taint's value.")] = ""
    effect: Annotated[str, Key("The taint's effect; empty for all.")] = ""


class _SpreadConstraint(Loose, frozen=True, kw_only=True):
    """One entry of ``topologySpreadConstraints``."""

    max_skew: Annotated[int, Between(1, 1000), Key("How many pods more a domain may have than another.")] = 1
    topology_key: Annotated[str, Key("The label of nodes that names their domain.")]
    when_unsatisfiable: Annotated[_Unsatisfiable, Key("Whether the pod waits for a node.")] = _Unsatisfiable.WAIT
    label_selector: Annotated[LabelSelector, Key("The pods that count.")] = LabelSelector()


class PodSpec(Loose, frozen=True):
    """``spec`` of a Pod or of a template."""

    node_name: Annotated[str, Key("The node it runs on.")] = ""
    node_selector: Annotated[Mapping[str, str], Key("Labels that its node must have.")] = field(default_factory=dict)
    affinity: Annotated[_Affinity, Key("Further requirements of its node.")] = _Affinity()
    tolerations: Annotated[tuple[_Toleration, ...], Key("The taints that its node may have.")] = ()
    spreads: Annotated[
        tuple[_SpreadConstraint, ...],
        Key("How its like spread over nodes or zones.", alias="topologySpreadConstraints"),
    ] = ()
    host_network: Annotated[bool, Key("Whether it uses its node's network.")] = False
    hostname: Annotated[str, Key("Its name in DNS below its subdomain.")] = ""
    subdomain: Annotated[str, Key("The headless Service under which it has a DNS name.")] = ""
    grace: Annotated[
        Seconds,
        Key("How long it may serve after it begins to terminate.", alias="terminationGracePeriodSeconds"),
    ] = 30
    containers: Annotated[tuple[_Container, ...], Key("Its containers.")] = ()
    init_containers: Annotated[
        tuple[_Container, ...], Key("Containers that start before; those with restartPolicy Always go on.")
    ] = ()

    @property
    def running(self) -> tuple[_Container, ...]:
        """The containers of the running pod: its sidecars and its own."""
        return (*(each for each in self.init_containers if each.restart_policy == SIDECAR), *self.containers)

    @property
    def ports(self) -> tuple[ListeningPort, ...]:
        """The ports on which its containers listen."""
        found = (port for container in self.running for port in container.ports)
        return tuple(
            ListeningPort(
                name=each.name,
                port=each.port,
                protocol=each.protocol,
                host_port=each.host_port or None,
                host_ip=each.host_ip,
            )
            for each in found
        )

    @property
    def seconds_to_ready(self) -> int:
        """The time from its start until it is ready."""
        return max((each.seconds for each in self.running), default=0)

    @property
    def constraints(self) -> Constraints:
        """Where it may run."""
        selector = _equal(self.node_selector)
        terms = [tuple(each.requirement for each in term.match_expressions) for term in self._required]
        return Constraints(
            node_name=self.node_name,
            terms=tuple((*selector, *term) for term in terms or [()] if selector or term),
            tolerations=tuple(
                Toleration(key=each.key, operator=each.operator, value=each.value, effect=each.effect)
                for each in self.tolerations
            ),
            spreads=tuple(
                TopologySpread(
                    max_skew=each.max_skew,
                    topology_key=each.topology_key,
                    hard=each.when_unsatisfiable is _Unsatisfiable.WAIT,
                    selector=each.label_selector.requirements,
                )
                for each in self.spreads
            ),
        )

    @property
    def _required(self) -> tuple[_Term, ...]:
        return self.affinity.node_affinity.required.terms
