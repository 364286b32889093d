"""Judges three stages by the rules in the nodes' kernels: entry rules, balancing, and the targets of DNAT.

It sends nothing: a right rule does not mean that packets reach it, which path tests show. Where a proxy's own process
ends connections, rules lead to the process, which must listen (``judge_programs``).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import TrafficPolicy
from proxylab.engines.programmed import Entry, Hook, Programmed
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.features.diagnose.model import Finding, Stage, breaks, holds
from proxylab.features.diagnose.subject import Backend, DiagnosedService, FrontendAddress

Rules = Mapping[tuple[str, Family], Programmed]
"""The rules of every node in every family."""

_TOLERANCE: Final = 1e-6
"""kube-proxy writes a probability with ten digits, and the kernel rounds it to a multiple of 2^-31."""

SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6")
"""The kernel's lists of a namespace's sockets (proc_net(5))."""

_LISTENS = {"0A": Protocol.TCP, "07": Protocol.UDP}
"""By state: LISTEN of TCP; CLOSE, which an unconnected socket of UDP has (include/net/tcp_states.h)."""

Listening = Mapping[str, frozenset[tuple[Protocol, int]]]
"""By node, the protocols and ports on which its programs listen."""


class _Choice(Struct, frozen=True, kw_only=True):
    """A balancing chain, its node, and the endpoints that it must choose among."""

    node: str
    frontend: FrontendAddress
    programmed: Programmed
    chain: str
    expected: tuple[Backend, ...]


def judge_entries(subject: DiagnosedService, rules: Rules, nodes: Sequence[str]) -> Finding:
    """Judge whether every node has a dispatch rule for every frontend."""
    if subject.other_proxy:
        cause = (
            f"the Service's label hands it to the proxy {subject.other_proxy!r}, so no engine here makes rules for it."
        )
        seen = f"the Service is for the proxy {subject.other_proxy!r}"
        return breaks(Stage.ENTRY, (seen,), cause, f"get service {subject.service.name} -o yaml")
    for node in nodes:
        for family in subject.families:
            finding = _unhooked(node, family, rules)
            if finding is not None:
                return finding
    for node in nodes:
        for frontend in subject.frontends:
            finding = _unrecognised(subject, node, frontend, rules[node, frontend.family])
            if finding is not None:
                return finding
    return holds(Stage.ENTRY, f"{listed(list(nodes))}: a rule for each of {amount(len(subject.frontends), 'frontend')}")


def _unhooked(node: str, family: Family, rules: Rules) -> Finding | None:
    programmed = rules.get((node, family))
    if programmed is None or not programmed.entries:
        cause = f"{node} has no {family} rule for any Service: another program flushed them, or no load succeeded."
        return breaks(Stage.ENTRY, (f"{node} has no rule for any Service",), cause, f"rules {node}", f"logs {node}")
    for hook in (Hook.IN, Hook.OUT):
        if hook not in programmed.hooked:
            cause = f"{node} has {family} rules for Services, but no rule sends {hook} to them."
            look = f"rules {node} | grep -E 'PREROUTING|OUTPUT|prerouting|output'"
            return breaks(Stage.ENTRY, (f"{node}: {hook} skip the rules for Services",), cause, look)
    return None


def _unrecognised(
    subject: DiagnosedService, node: str, frontend: FrontendAddress, programmed: Programmed
) -> Finding | None:
    found = _entries(programmed, frontend)
    expected = subject.expected(frontend, node)
    look = (f"rules {node} | grep {frontend.address or frontend.port_number}", f"logs {node}")
    if not (programmed.reaches_node_ports if frontend.address is None else programmed.reaches_addresses):
        what = "addresses" if frontend.address is not None else "node ports"
        cause = f"on {node} no rule jumps from the rules for Services to those for {what}."
        return breaks(Stage.ENTRY, (f"{node}: no jump to the rules for {what}",), cause, *look)
    if not found:
        cause = f"{node} has no rule for the {frontend}: packets to it pass untranslated."
        return breaks(Stage.ENTRY, (f"{node} has no rule for the {frontend}",), cause, *look)
    if expected and not any(entry.leads_to for entry in found):
        does = {"REJECT": "rejects", "DROP": "drops"}[found[0].refused]
        cause = f"{node} {does} packets to the {frontend}, though {amount(len(expected), 'endpoint')} would serve it."
        return breaks(Stage.ENTRY, (f"{node} {does} packets to the {frontend}",), cause, *look)
    return None


def judge_balancing(subject: DiagnosedService, rules: Rules, nodes: Sequence[str]) -> Finding:
    """Judge whether the rules behind every frontend choose each endpoint with equal probability."""
    most = 0
    for node in nodes:
        for frontend in subject.frontends:
            programmed = rules[node, frontend.family]
            for choice in _choices(subject, node, frontend, programmed):
                finding = _unbalanced(subject, choice)
                if finding is not None:
                    return finding
                most = max(most, len(choice.expected))
            if subject.expected(frontend, node) and not any(_choices(subject, node, frontend, programmed)):
                chain = next(entry.leads_to for entry in _entries(programmed, frontend) if entry.leads_to)
                cause = f"on {node} the rule for the {frontend} jumps to {chain}, where no rule chooses an endpoint."
                seen = f"{node}: {chain} chooses no endpoint"
                return breaks(Stage.BALANCING, (seen,), cause, f"rules {node} | grep -F {chain}")
    if not most:
        return holds(Stage.BALANCING, "no node has an endpoint to choose")
    ways = (
        "one way, to the only endpoint" if most == 1 else f"one way for each of {most:,} endpoints, all equally likely"
    )
    return holds(Stage.BALANCING, f"{listed(list(nodes))}: {ways}")


def _unbalanced(subject: DiagnosedService, choice: _Choice) -> Finding | None:
    node, chain, expected = choice.node, choice.chain, choice.expected
    ways = choice.programmed.ways[chain]
    look = (f"rules {node} | grep -F {chain}", f"get endpoints {subject.service.name}")
    if len(ways) != len(expected):
        there = [way.to for way in ways]
        missing = [subject.name_of(each) for each in expected if each not in there]
        foreign = [endpoint(*each) for each in there if each is not None and each not in expected]
        wrong = f"; none leads to {listed(missing, 'or')}" if missing else ""
        wrong += f"; {listed(foreign)} is not an endpoint for this node" if foreign else ""
        count = f"{chain} on {node} has {amount(len(ways), 'way')} for {amount(len(expected), 'endpoint')}"
        return breaks(Stage.BALANCING, (count,), f"behind the {choice.frontend}, {count}{wrong}.", *look)
    for number, way in enumerate(ways):
        share = choice.programmed.share(chain, number)
        if abs(share - 1 / len(expected)) > _TOLERANCE:
            name = subject.name_of(way.to) if way.to is not None else way.by
            cause = f"{chain} on {node} gives {name} {share:.1%} of the flows, expected {1 / len(expected):.1%}."
            return breaks(Stage.BALANCING, (f"{chain} on {node} does not share evenly",), cause, *look)
    return None


def judge_targets(subject: DiagnosedService, rules: Rules, nodes: Sequence[str]) -> Finding | None:
    """The finding that a rule translates to a wrong address, or not at all; ``None`` where all are right."""
    for node in nodes:
        for frontend in subject.frontends:
            for choice in _choices(subject, node, frontend, rules[node, frontend.family]):
                for way in choice.programmed.ways[choice.chain]:
                    if way.to in choice.expected:
                        continue
                    does = "translates nothing" if way.to is None else f"translates to {endpoint(*way.to)}"
                    targets = [each.to for each in choice.programmed.ways[choice.chain]]
                    left = [subject.name_of(each) for each in choice.expected if each not in targets]
                    why = "" if way.to is None else ", which is not an endpoint for this node"
                    instead = f"; no rule leads to {listed(left, 'or')}" if left else ""
                    cause = f"behind the {frontend}, {way.by} on {node} {does}{why}{instead}."
                    seen = f"{way.by} on {node} {does}"
                    look = (f"rules {node} | grep -F {way.by}", f"get endpoints {subject.service.name}")
                    return breaks(Stage.DNAT, (seen,), cause, *look)
    return None


def _entries(programmed: Programmed, frontend: FrontendAddress) -> list[Entry]:
    wanted = (frontend.address, frontend.port.protocol, frontend.port_number)
    return [each for each in programmed.entries if (each.address, each.protocol, each.port) == wanted]


def _choices(
    subject: DiagnosedService, node: str, frontend: FrontendAddress, programmed: Programmed
) -> Iterator[_Choice]:
    """The balancing chains behind a frontend, each with the endpoints that it must choose among.

    Policy Local has two where pods and the node itself may use all endpoints. The chain for all endpoints does not
    replace a missing local one.
    """
    service = subject.service
    policy = service.internal_traffic_policy if frontend.is_internal else service.external_traffic_policy
    found = [chain for entry in _entries(programmed, frontend) for chain in programmed.balancing(entry)]
    local = subject.local(frontend, node) if policy is TrafficPolicy.LOCAL else ()
    if local and not programmed.falls_back and programmed.local.isdisjoint(found):
        return
    for chain in dict.fromkeys(found):
        expected = subject.everywhere(frontend, node)
        if chain in programmed.local or (local and programmed.falls_back):
            expected = subject.local(frontend, node)
        yield _Choice(node=node, frontend=frontend, programmed=programmed, chain=chain, expected=expected)


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
            found = [int(each.leads_to) for each in _entries(rules[node, frontend.family], frontend)]
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
