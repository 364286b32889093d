"""The records of the oracle: ``FlowQuestion`` and ``FlowAnswer`` of a flow, ``HealthAnswer`` of a health check."""

from collections.abc import Mapping

from msgspec import field

from proxylab.addresses import IPAddress, Transport
from proxylab.encoding import Record
from proxylab.plan.resolved import PolicyRoute
from proxylab.scenario.words import IcmpError, Outcome, Reply


class FlowQuestion(Record, frozen=True, kw_only=True):
    """A new flow: who sends it, from which address, and what it dials.

    Attributes:
        sender: the network namespace of the sender; a pod with hostNetwork sends from its node's.
        source: the source address.
        port: 0 for an echo request.
        policy_route: a route of the router that holds for this flow alone.
        frame_mac: the receiver of the sender's frames, where routing does not choose it.
        path: of the HTTP request, if it is one.
    """

    sender: str
    source: IPAddress
    destination: IPAddress
    port: int
    protocol: Transport
    policy_route: PolicyRoute | None = None
    frame_mac: str = ""
    path: str = ""


class SeenSource(Record, frozen=True):
    """The source address that an endpoint sees, and whether a node masqueraded the packet on its way."""

    address: IPAddress
    is_masqueraded: bool


class ReachedEndpoint(Record, frozen=True, kw_only=True):
    """Where a flow may arrive.

    Attributes:
        name: the pod, daemon or host that answers there.
        share: of the flows, if nothing makes them stick to one endpoint, and no scheduler chooses otherwise.
        sources: one, or one for each way into the cluster that a flow may take.
        reply: whose address the answer comes from, the dialled one or the endpoint's own.
    """

    address: IPAddress
    port: int
    name: str
    share: float
    sources: tuple[SeenSource, ...]
    reply: Reply = Reply.TRANSLATED


class HealthAnswer(Record, frozen=True, kw_only=True):
    """What a proxy answers to a health check: its status, and at a health-check node port the number of endpoints."""

    status: int
    local_endpoints: int | None = None


class FlowAnswer(Record, frozen=True, kw_only=True):
    """What must become of a flow.

    Attributes:
        outcomes: one, or several: then Kubernetes leaves it open, or it depends on the way into the cluster.
        reached: all endpoints that a flow may reach.
        at: the machines where a flow may end that is not delivered.
        icmp: the ICMP error of a rejected flow.
        sticky: seconds for which a client keeps its endpoint; ``None`` without session affinity.
        is_scheduled: whether a scheduler of IPVS that takes no turns chooses among several, so that shares say nothing.
        health: the answer of a proxy to a health check.
        rows: the ids of the rows from which each part follows: ``outcome``, ``endpoints``, ``source``, ``affinity``.
        outside: why the oracle does not say what must happen; nothing else is set then.
    """

    outcomes: tuple[Outcome, ...] = ()
    reached: tuple[ReachedEndpoint, ...] = ()
    at: tuple[str, ...] = ()
    icmp: IcmpError | None = None
    sticky: int | None = None
    is_scheduled: bool = False
    health: HealthAnswer | None = None
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    outside: str = ""
