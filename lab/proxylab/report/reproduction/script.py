"""``repro.sh``: the order of its parts, and the comments that explain them.

People read the script, edit a rule in it, and paste it into an issue. So it has at most 200 lines, and nothing that the
probe cannot meet; longer rules go to files beside it.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.evidence.evidence import Packet
from proxylab.plan.masquerade import masquerade_text
from proxylab.plan.model import Plan
from proxylab.plan.outages import Absences
from proxylab.plan.resolved import STACK
from proxylab.report.reproduction import network
from proxylab.report.reproduction.outcome import expected, flow_to_send, obstacle
from proxylab.report.reproduction.programs import listener, sender
from proxylab.report.reproduction.reduced_rules import LoadedRules, rulesets
from proxylab.report.view import ProbeView, view_of
from proxylab.scenario.words import Outcome
from proxylab.statistics import flows_to_hit_all
from proxylab.text import table, wrapped
from proxylab.verdict.model import ProbeVerdict, StepVerdict

MOST_LINES: Final = 200
"""If the script would be longer, its rules move to files."""

PRESENT: Final = Absences()

_WIDTH: Final = 98

_MOST_TIMES: Final = 100
"""The most times that the script sends a flow whose endpoint is random."""

_USAGE: Final = """\
# "sh repro.sh" builds the network below in namespaces of its own, sends the probe, and tells what
# became of it. It touches nothing else, and leaves nothing. It exits with 1 if the failure shows,
# 0 if all is as expected, 2 if something could not be built. It needs iproute2, {tools},
# util-linux and python3; and root, or the right to make user namespaces.

set -eu
if [ -z "${{INSIDE-}}" ]; then
    [ "$(id -u)" = 0 ] || as='--user --map-root-user'
    INSIDE=yes exec timeout 60 unshare ${{as-}} --net --mount --pid --fork --kill-child sh "$0"
fi
trap '[ -n "${{seen-}}" ] || {{ echo "the setup failed" >&2; exit 2; }}' EXIT
mount -t tmpfs none /run
mkdir /run/netns /run/listening
"""

_CARRIES: Final = """\
tries=200
for name in $names; do  # a packet sent before a link is up is lost
    while ip -n "$name" -o link show up type veth | grep -qv 'state UP' ||
        bridge -n "$name" link show | grep -qv 'state forwarding'; do
        [ $((tries -= 1)) -gt 0 ] || { echo "a link of $name does not come up" >&2; exit 2; }
        sleep 0.05
    done
done
"""

_LISTENS: Final = """\
while [ "$(ls /run/listening | wc -l)" -lt %d ]; do
    [ $((tries -= 1)) -gt 0 ] || { echo "the listeners do not start" >&2; exit 2; }
    sleep 0.05
done
"""


def reproduction(
    verdict: ProbeVerdict,
    plan: Plan,
    rules: Mapping[str, str],
    *,
    engine: str,
    tool: str,
    absences: Absences = PRESENT,
) -> dict[str, bytes]:
    """The script, with files for rules that are too long for it; or a file that says why there is no script.

    ``rules`` are what iptables-save or ``nft list ruleset`` printed on each node, and ``tool`` is the iptables variant
    that saved them, ``legacy`` or ``nft``. ``absences`` are the links and pods that earlier steps removed.
    """
    reason = obstacle(verdict)
    if not reason and plan.dialler(verdict.resolved.destination) is not None:
        reason = "a load balancer dials node ports for the probe, and a script has rules of nodes alone"
    if reason:
        return unreproduced(verdict, reason)
    resolved = verdict.resolved
    loaded, targets = rulesets(rules, resolved, tool)
    part = network.reachable_part(plan, resolved, verdict.evidence, targets)
    names = {each.name for each in part.namespaces}
    loaded = tuple(each for each in loaded if each.node in names)
    head = [*_head(verdict, part, engine), *_usage(loaded)]
    body = [
        "# --- The network: namespaces, links, addresses, routes, and the settings that matter",
        *network.built(part, resolved.destination.version, resolved.policy_route),
        *["", *_CARRIES.splitlines(), *_absent(part, absences)],
    ]
    tail = [*_listening(verdict, part, targets), *_probe(verdict, targets)]
    inline = [*_rules(loaded, part, tool, files=False)]
    files: dict[str, bytes] = {}
    if sum(map(len, (head, body, tail, inline))) > MOST_LINES:
        inline = [*_rules(loaded, part, tool, files=True)]
        files = {_file(each): _text(each.lines) for each in loaded}
    return {"repro.sh": _text([*head, *body, *inline, *tail]), **files}


def unreproduced(verdict: ProbeVerdict | StepVerdict, reason: str) -> dict[str, bytes]:
    """A file that says why there is no script, and which commands to use instead."""
    what = "step" if isinstance(verdict, StepVerdict) else "probe"
    lines = [
        *wrapped(f"No script reproduces this {what} without proxylab: {reason}."),
        "",
        "To judge the recorded evidence again, on any machine:",
        "    proxylab judge THIS-DIRECTORY",
        "To run it again, on this machine's kernel:",
        f"    {view_of(verdict).command}",
    ]
    return {"repro.txt": _text(lines)}


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _head(verdict: ProbeVerdict, part: Plan, engine: str) -> Iterator[str]:
    """The header comment: the probe, its network, the expected result and the observed one."""
    view, probe, case = ProbeView(verdict), verdict.probe, verdict.case
    flow, line = flow_to_send(case)
    paragraphs = [
        wrapped(f"{verdict.overall.upper()}: {probe.name} ({probe.position}, engine {engine})", width=_WIDTH),
        [""],
        wrapped(view.sent, width=_WIDTH),
        wrapped(expected(case, flow), "  expected:   ", width=_WIDTH),
        wrapped(line, "  in the lab: ", width=_WIDTH),
        wrapped(view.cause, "why: ", width=_WIDTH) if view.cause else [],
        [""],
        ["The part of the network that the probe can meet:"],
        table(tuple(network.described(part)), "  "),
        [""],
    ]
    yield "#!/bin/sh"
    yield from (f"# {each}".rstrip() for each in chain.from_iterable(paragraphs))


def _usage(loaded: Sequence[LoadedRules]) -> Iterator[str]:
    tools = dict.fromkeys(each.loader.split()[0] for each in loaded)
    yield from _USAGE.format(tools=", ".join(tools) or "no other").splitlines()
    yield ""


def _absent(part: Plan, absences: Absences) -> Iterator[str]:
    commands = list(network.absent(part, absences))
    if commands:
        yield from ["", "# What earlier steps removed: links that are down, pods that are gone", *commands]


def _file(loaded: LoadedRules) -> str:
    return f"repro.rules/{loaded.node}"


def _rules(loaded: Sequence[LoadedRules], part: Plan, tool: str, *, files: bool) -> Iterator[str]:
    left_out = sum(each.left_out for each in loaded)
    yield from ["", "# --- The rules of each node after the probe, without counters"]
    if left_out:
        yield f"# ({left_out:,} lines that this probe cannot meet are left out, such as rules for other Services)"
    if files:
        yield 'cd "$(dirname "$0")"'
        yield from (f"ip netns exec {each.node} {each.loader} < {_file(each)}" for each in loaded)
    else:
        for loader, lines in dict.fromkeys((each.loader, each.lines) for each in loaded):
            nodes = [each.node for each in loaded if (each.loader, each.lines) == (loader, lines)]
            if len(nodes) == 1:
                yield from [f"ip netns exec {nodes[0]} {loader} << 'END'", *lines, "END"]
            else:
                yield f"for node in {' '.join(nodes)}; do ip netns exec $node {loader} << 'END'"
                yield from [*lines, "END", "done"]
    for namespace in part.namespaces:
        for masquerade in namespace.masquerades:
            family = "" if masquerade.family is Family.IPV4 else "6"
            yield f"ip netns exec {namespace.name} ip{family}tables-{tool}-restore --noflush << 'END'"
            yield from [*masquerade_text(masquerade).splitlines(), "END"]


def _listening(verdict: ProbeVerdict, part: Plan, targets: frozenset[IPAddress]) -> Iterator[str]:
    """The listeners: on every endpoint that the rules may choose, and on the owner of the dialled address."""
    resolved = verdict.resolved
    yield from ["", "# --- The endpoints"]
    arrived = {each.destination for each in verdict.evidence.observations if each.packet is Packet.REQUEST}
    listening = list(_endpoints(verdict, part, targets | {resolved.destination} | arrived))
    for node in sorted({node for _, _, node in listening}):
        program = "listen-on-a-node.py" if node else "listen.py"
        yield from [f"cat > /run/{program} << 'END'"]
        yield from listener(resolved.protocol, resolved.destination.version, node=node).splitlines()
        yield "END"
        for namespace, words, on_a_node in listening:
            if on_a_node is node:
                yield f"ip netns exec {namespace} python3 /run/{program} {words} &"
    yield from (_LISTENS % len(listening)).splitlines()


class _ListeningProgram(NamedTuple):
    """A program that listens: its namespace, its arguments, and whether it runs on a node."""

    namespace: str
    words: str
    on_a_node: bool


def _endpoints(verdict: ProbeVerdict, part: Plan, addresses: frozenset[IPAddress]) -> Iterator[_ListeningProgram]:
    """The programs that listen where the probe may arrive."""
    resolved = verdict.resolved
    for each in resolved.receivers:
        namespace = next((one for one in part.namespaces if one.name == each.namespace), None)
        if namespace is None or each.address not in addresses:
            continue
        if not each.address.is_loopback and each.address not in {one.interface.ip for one in namespace.addresses}:
            continue
        served = {
            one.port
            for one in namespace.listeners
            if one.protocol is resolved.protocol.served
            and one.name == each.name
            and one.address in (None, each.address)
        }
        ports = [str(port) for port in sorted(served)]
        node = each.device == STACK
        if not node or resolved.protocol is Transport.ICMP:
            yield _ListeningProgram(namespace.name, " ".join([each.name, str(each.address), "any", *ports]), node)
        else:
            yield from (
                _ListeningProgram(namespace.name, f"{each.name} {each.address} {port} {port}", node) for port in ports
            )


def _probe(verdict: ProbeVerdict, targets: frozenset[IPAddress]) -> Iterator[str]:
    resolved = verdict.resolved
    case = verdict.case
    flow, _ = flow_to_send(case)
    chance = len(targets) > 1 and resolved.sender.port is None and verdict.probe.expect.outcome is Outcome.DELIVERED
    times = min(flows_to_hit_all(len(targets)), _MOST_TIMES) if chance else 1
    words = [
        resolved.sender.address_of_flow(flow.number),
        resolved.sender.port or 0,
        resolved.destination,
        resolved.port,
        times,
    ]
    yield from ["", "# --- The probe", "cat > /run/send.py << 'END'"]
    yield from sender(resolved.protocol, resolved.destination.version, resolved.payload).splitlines()
    yield "END"
    yield f"expected={shlex.quote(expected(case, flow))}"
    if times > 1:
        yield f"# up to {times} times while the result is as expected: the rules choose a random endpoint"
    send = " ".join(["python3 /run/send.py", *map(str, words), '"$expected"'])
    yield f"seen=$(ip netns exec {resolved.sender.namespace} {send})"
    yield 'printf \'expected: %s\\nseen:     %s\\n\' "$expected" "$seen"'
    yield 'echo "$seen" | grep -Eqx -- "$expected"'
