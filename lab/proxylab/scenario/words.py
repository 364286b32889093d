"""The enums whose values an author writes, and ``Position``, a place in a scenario's file."""

from enum import StrEnum
from typing import Final

from proxylab.encoding import Record

HOST: Final = "host"
UML: Final = "uml"
DEBIAN: Final = "debian:"
"""What names a kernel: the machine's own, a user-mode Linux, and with a version after it a package of Debian's. Any
other word is a path."""


class Position(Record, frozen=True):
    """A place in a scenario file. Line and column count from 1, as editors do."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Frontend(StrEnum):
    """``via``: the frontend of a Service that a probe dials."""

    CLUSTER_IP = "clusterIP"
    NODE_PORT = "nodePort"
    EXTERNAL_IP = "externalIP"
    LOAD_BALANCER_IP = "loadBalancerIP"
    HEALTH_CHECK_NODE_PORT = "healthCheckNodePort"
    DNS_NAME = "dnsName"
    INGRESS = "ingress"


class PodWay(StrEnum):
    """``via``: the address of a pod that a probe dials."""

    POD_IP = "podIP"
    HOST_PORT = "hostPort"


class Dials(StrEnum):
    """``dials``: where a load balancer sends the packets to its addresses."""

    ADDRESSES = "addresses"
    NODE_PORTS = "nodePorts"


class ClientAddress(StrEnum):
    """``clientIP``: what nodes see of a client behind a load balancer that dials node ports."""

    PRESERVED = "preserved"
    REPLACED = "replaced"


class Manner(StrEnum):
    """``send.as``: kernel sockets with data both ways, or single packets that scapy builds.

    ``either`` means packets where the proxy forwards, and connections where it ends connections itself. A case of a
    scenario has one of the first two.
    """

    CONNECT = "connect"
    PACKET = "packet"
    EITHER = "either"


class Outcome(StrEnum):
    """The result of a flow."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    REFUSED = "refused"
    DROPPED = "dropped"
    UNTRANSLATED = "untranslated"
    CLOSED = "closed"


class IcmpError(StrEnum):
    """An ICMP error by which a rule rejects a packet; the last five are of one family only."""

    PORT_UNREACHABLE = "port-unreachable"
    HOST_UNREACHABLE = "host-unreachable"
    NO_ROUTE = "no-route"
    ADMIN_PROHIBITED = "admin-prohibited"
    PROTOCOL_UNREACHABLE = "protocol-unreachable"
    NET_PROHIBITED = "net-prohibited"
    HOST_PROHIBITED = "host-prohibited"
    POLICY_FAIL = "policy-fail"
    REJECT_ROUTE = "reject-route"


ROUTER: Final = "router"
"""The router between the segments, as expectations name it."""


class ErrorKind(StrEnum):
    """A kind of ICMP error, by one word for both families."""

    TOO_BIG = "too-big"
    TIME_EXCEEDED = "time-exceeded"
    UNREACHABLE = "unreachable"


class ControlPlaneKind(StrEnum):
    """What serves the API of the cluster: the lab itself, or a real kube-apiserver with etcd and controllers."""

    EMBEDDED = "embedded"
    REAL = "real"


class Program(StrEnum):
    """``program``: a real program that answers on a pod's ports."""

    NGINX = "nginx"


class Spread(StrEnum):
    """How flows spread over the backends."""

    EVEN = "even"
    STICKY = "sticky"


class Reply(StrEnum):
    """``reply``: the answer's source, or that none comes back, or is sent.

    That is the dialled address, the backend's own, or the node port that a load balancer has dialled.
    """

    TRANSLATED = "translated"
    UNTRANSLATED = "untranslated"
    NODE_PORT = "nodePort"
    LOST = "lost"
    NONE = "none"
