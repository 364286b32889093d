"""The stage ``entry rules`` where a proxy's own process ends connections: rules lead to it, and it listens.

Owns ``judge_programs``, and ``listening``, which reads what listens from the kernel's lists of sockets.
"""

from collections.abc import Iterator, Mapping, Sequence

from proxylab.addresses import Protocol
from proxylab.diagnosis.model import Finding, Stage, breaks, holds
from proxylab.diagnosis.rules_stages import Rules
from proxylab.diagnosis.subject import DiagnosedService
from proxylab.engines.programmed import Programmed
from proxylab.evidence.words import listed

__all__ = ["SOCKETS", "judge_programs", "listening"]

SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6")
"""The kernel's lists of a namespace's sockets (proc_net(5))."""

_LISTENS = {"0A": Protocol.TCP, "07": Protocol.UDP}
"""By state: LISTEN of TCP; CLOSE, which an unconnected socket of UDP has (include/net/tcp_states.h)."""

Listening = Mapping[str, frozenset[tuple[Protocol, int]]]
"""By node, the protocols and ports on which its programs listen."""


def listening(lists: str) -> frozenset[tuple[Protocol, int]]:
    """The protocols and ports in the kernel's lists of sockets."""
    rows = (line.split() for line in lists.splitlines())
    sockets = ((row[3], row[1].rpartition(":")[2]) for row in rows if len(row) > 3 and row[0].rstrip(":").isdigit())
    return frozenset((_LISTENS[state], int(port, 16)) for state, port in sockets if state in _LISTENS)


def judge_programs(subject: DiagnosedService, rules: Rules, programs: Listening, nodes: Sequence[str]) -> Finding:
    """Judge whether every node leads each frontend to a port, and its process listens there."""
    seen = []
    for node in nodes:
        ports = dict[int, None]()
        for frontend in subject.frontends:
            protocol = frontend.port.protocol
            found = list(_ports(rules[node, frontend.family], (frontend.address, protocol, frontend.port_number)))
            look = (f"rules {node} | grep {frontend.address or frontend.port_number}", f"logs {node}")
            if not found:
                cause = f"{node} has no rule that leads the {frontend} to the proxy's process."
                return breaks(Stage.ENTRY, (f"{node} has no rule for the {frontend}",), cause, *look)
            for port in found:
                if (protocol, port) not in programs[node]:
                    cause = f"on {node} the rule for the {frontend} leads to port {port}, where no process listens."
                    return breaks(Stage.ENTRY, (f"nothing listens on {protocol} port {port} of {node}",), cause, *look)
                ports[port] = None
        seen.append(f"{node}: its proxy's process listens on {listed([f'port {port}' for port in ports])}")
    return holds(Stage.ENTRY, *seen)


def _ports(programmed: Programmed, wanted: tuple[object, Protocol, int]) -> Iterator[int]:
    for each in programmed.entries:
        if (each.address, each.protocol, each.port) == wanted:
            yield int(each.leads_to)
