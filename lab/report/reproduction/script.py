"""The script that shows a failure again.

Owns: the order of its parts, its shell functions, and the words that tell a reader what each part is for.
Must not: know iproute2's words (``wire``) or what is expected (``case``).

The script is for people too: whoever mends a rule edits it there and runs it again. So everything stands in it as its
own tool reads it, in the order in which it happens, and nothing that the probe cannot have met.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from lab.ip import Family, Transport
from lab.plan.errand import Detour
from lab.plan.masquerade import masquerade_text
from lab.plan.model import Plan
from lab.plan.reach import Absences
from lab.report.reproduction import wire
from lab.report.reproduction.affinity import tied
from lab.report.reproduction.case import MOST_FRAMES, case_of, frames_of, needed, remembered
from lab.report.reproduction.step import step_case
from lab.scenario.model import Manner
from lab.verdict.evidence import Capture
from lab.verdict.explain import explain
from lab.verdict.model import ProbeVerdict, StepVerdict

__all__ = ["PRESENT", "reconstruction", "reproduction"]

PRESENT: Final = Absences()

_PROGRAMS: Final = Path(__file__).parent / "programs"

_USAGE: Final = """\
#
# This script shows it again without proxylab: it rebuilds the wire and the rules in
# namespaces of its own, sends the packets, and tells what became of them. Nothing
# outside is touched, and with the script everything is gone.
#
#   sh repro.sh          rebuild, send, tell; exit 1 if the failure shows, 0 if not,
#                        2 if the case could not be rebuilt
#   sh repro.sh shell    the same, then a shell inside, for a look around:
#                        nsenter --net=/run/netns/NAME COMMAND …
#
# Needs unshare and nsenter (util-linux), ip and bridge (iproute2), {tools}
# and python3; root, or the right to make user namespaces.
"""

_STEP: Final = """\
#
# This script makes the step again without proxylab: it rebuilds the wire, with the
# rules of every node as they stood when the step began, in namespaces of its own, and
# sends the streams. Then it changes rules, links and pods to what the step has led to,
# and tells what became of the streams. Nothing outside is touched, and with the script
# everything is gone.
#
# It has no proxy: the rules change from the first to the last at once, and what lay
# between is not known. Where the proxy had made nodes forget a stream, so does the
# script, and what else connection tracking held at the end was there before.
#
#   sh repro.sh          rebuild, send, change, tell; exit 1 if the failure shows, 0 if
#                        not, 2 if the case could not be rebuilt
#   sh repro.sh shell    the same, then a shell inside, for a look around:
#                        nsenter --net=/run/netns/NAME COMMAND …
#
# Needs unshare and nsenter (util-linux), ip and bridge (iproute2), {tools}
# and python3; root, or the right to make user namespaces.
"""

_SANDBOX: Final = """\
set -eu

# --- A sandbox: user, network, mount and pid namespaces of its own.

if [ "${INSIDE-}" != yes ]; then
    user=''
    [ "$(id -u)" = 0 ] || user='--user --map-root-user'
    # shellcheck disable=SC2086
    INSIDE=yes exec unshare $user --net --mount --pid --fork --kill-child --propagation private sh "$0" "$@"
fi
trap '[ "${built-}" = yes ] || { echo "the case could not be rebuilt" >&2; exit 2; }' EXIT
mount -t tmpfs none /run
mkdir /run/netns /run/case

inside() { # NAMESPACE COMMAND…
    name=$1
    shift
    nsenter --net="/run/netns/$name" "$@"
}

sysctls() { # NAMESPACE…, and a line for each key: path below /proc/sys, value
    cat > /run/case/sysctls
    for name in "$@"; do
        inside "$name" sh -c 'while read -r key value; do
            [ ! -e "/proc/sys/$key" ] || echo "$value" > "/proc/sys/$key"
        done' < /run/case/sysctls
    done
}
"""

_CARRYING: Final = """\
# --- Until every link carries: packets that are sent before are lost.

carrying() {
    for name in $names; do
        if inside "$name" ip -o link show up type veth | grep -qv 'state UP'; then return 1; fi
        if inside "$name" bridge link show | grep -q 'state disabled'; then return 1; fi
    done
}
tries=0
until carrying; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || { echo 'a link does not carry' >&2; exit 2; }
    sleep 0.05
done
built=yes
"""

_PLAY: Final = """\
status=0
python3 /run/case/play.py /run/case/case.json {frames}|| status=$?
[ "${{1-}}" != shell ] || PS1='repro# ' sh -i || true
exit "$status"
"""


_CHANGE: Final = """\
status=0
cd /run/case
python3 step.py case.json before.sh change.sh settle.sh || status=$?
[ "${1-}" != shell ] || PS1='repro# ' sh -i || true
exit "$status"
"""

_OF_STEPS: Final = ("listeners.py", "memory.py", "netns.py", "packets.py", "step.py", "stream.py", "tables.py")


def reproduction(
    verdict: ProbeVerdict,
    plan: Plan,
    capture: Capture,
    rules: Mapping[str, str],
    tool: str,
    absences: Absences = PRESENT,
) -> str:
    """The text of the script.

    Args:
        verdict: of the probe; its errand is sent, its expectations are held against what is seen.
        plan: of the lab.
        capture: the frames of the probe.
        rules: of each node, as iptables-save or ``nft list ruleset`` printed them.
        tool: the variant of iptables that saved them, ``legacy`` or ``nft``.
        absences: what steps had taken out of the lab.
    """
    wanted = needed(verdict, plan, rules)
    loads = [load for node, text in rules.items() for load in _loads(node, text, tool)]
    loads = [*tied(loads, verdict), *_masquerades(wanted, tool)]
    frames = frames_of(verdict, capture)
    parts = [
        _head(verdict, _tools(loads), _USAGE),
        _SANDBOX,
        _wire(wanted, verdict.errand.detour),
        _rules(loads),
        _CARRYING,
        *_absent(wanted, absences),
        _files(json.dumps(case_of(verdict, wanted), indent=1), frames, verdict),
        _PLAY.format(frames="/run/case/frames " if frames else ""),
    ]
    return "\n".join(parts)


def reconstruction(
    verdict: StepVerdict,
    plan: Plan,
    rules: Mapping[str, tuple[str, str]],
    tool: str,
    absences: tuple[Absences, Absences] = (PRESENT, PRESENT),
    began: Plan | None = None,
) -> str:
    """The text of the script that makes a step again, as far as files can tell it.

    Args:
        verdict: of the step.
        plan: of the lab.
        rules: of each node, when the step began and when it ended.
        tool: the variant of iptables that saved them, ``legacy`` or ``nft``.
        absences: what was taken out of the lab before the step, and with it.
        began: the plan when the step began, where balancers have made other routes since.
    """
    before, after = absences
    began = began or plan
    loads = [load for node, (text, _) in rules.items() for load in _loads(node, text, tool)]
    later = [load for node, texts in rules.items() for load in _reloads(node, *texts, tool)]
    own = list(_masquerades(plan, tool))
    way = next((each.detour for each in verdict.streams if each.detour is not None), None)
    case = json.dumps(step_case(verdict, plan, before, after), indent=1)
    changed = {node for node, _, _ in later}
    lines = ["# --- The streams, what is expected of them, and the programs that send them.", ""]
    lines += _heredoc("cat > /run/case/case.json", case.splitlines())
    for name in _OF_STEPS:
        lines += ["", *_heredoc(f"cat > /run/case/{name}", (_PROGRAMS / name).read_text(encoding="utf-8").splitlines())]
    later += [load for load in own if load[0] in changed]
    parts = [
        _head(verdict, _tools([*loads, *later, *own]), _STEP),
        _SANDBOX,
        _wire(began, way),
        _rules([*loads, *own], "when the step began"),
        _CARRYING,
        "\n".join([*lines, ""]),
        _changes(plan, began, absences, verdict, later),
        _CHANGE,
    ]
    return "\n".join(parts)


def _changes(
    plan: Plan,
    began: Plan,
    absences: tuple[Absences, Absences],
    verdict: StepVerdict,
    loads: Iterable[tuple[str, str, tuple[str, ...]]],
) -> str:
    """The scripts in the script: what earlier steps took away, what changes, and what is done after the wait."""
    at_once, settled = wire.changed(plan, *absences)
    lines = ["# --- Once the streams go where they went: what earlier steps have taken away."]
    lines += _script("before.sh", map(_inside, wire.absent(plan, absences[0])))
    change = list(map(_inside, at_once))
    for node, each in verdict.step.change.nodes.items():
        for key, value in each.sysctls.items():
            change.append(f"inside {node} sh -c 'echo {value} > /proc/sys/{wire.path_of(key)}'")
    for node, command, text in loads:
        change += ["", *_heredoc(f"inside {node} {command}", text)]
    change += map(_inside, wire.rerouted(began, plan))  # balancers follow what health checks say of the rules
    lines += ["", "# --- What the step changes, with the rules as they stood when it ended."]
    lines += _script("change.sh", change)
    lines += ["", "# --- What is done when the step has waited."]
    lines += _script("settle.sh", map(_inside, settled))
    return "\n".join([*lines, ""])


def _inside(where: tuple[str, str]) -> str:
    return f"inside {where[0]} {where[1]}"


def _script(name: str, lines: Iterable[str]) -> Iterator[str]:
    """A script of sh in the script; END ends what it has in it."""
    yield from ("", f"cat > /run/case/{name} << 'SCRIPT'", "set -eu")
    yield 'inside() { name=$1; shift; nsenter --net="/run/netns/$name" "$@"; }'
    yield from lines
    yield "SCRIPT"


def _tools(loads: Iterable[tuple[str, str, tuple[str, ...]]]) -> list[str]:
    return sorted({command.split()[0] for _, command, _ in loads}) or ["sh"]


def _head(verdict: ProbeVerdict | StepVerdict, tools: Iterable[str], usage: str) -> str:
    lines = (f"# {line}".rstrip() for line in explain(verdict))
    return "\n".join(["#!/bin/sh", *lines, usage.format(tools=" and ".join(tools))])


def _wire(plan: Plan, way: Detour | None) -> str:
    lines = ["# --- The wire: namespaces, their sysctls before any link, links, addresses, routes.", ""]
    lines += [f"names='{' '.join(wire.names(plan))}'", 'for name in $names; do ip netns add "$name"; done']
    for namespaces, values in wire.sysctls(plan):
        lines += ["", *_heredoc(f"sysctls {' '.join(namespaces)}", values)]
    lines += ["", *_heredoc("ip -batch -", wire.links(plan))]
    for namespace in plan.namespaces:
        lines += ["", f"# {namespace.role} {namespace.name}"]
        for command, batch in wire.furnishing(plan, namespace):
            if batch:
                of = f"sysctls {namespace.name}" if command == "sysctls" else f"inside {namespace.name} {command}"
                lines += _heredoc(of, batch)
    if way is not None:
        lines += ["", "# so that the probe enters by the node that is meant"]
        lines.append(f"inside {way.namespace} ip {wire.detour(way)}")
    return "\n".join([*lines, ""])


def _absent(plan: Plan, absences: Absences) -> Iterator[str]:
    commands = [_inside(each) for each in wire.absent(plan, absences)]
    if commands:
        lines = "\n".join(commands)
        yield f"# --- What steps have taken away: links that are cut, and pods that are gone.\n\n{lines}\n"


def _rules(loads: Iterable[tuple[str, str, tuple[str, ...]]], when: str = "after the probe") -> str:
    lines = [f"# --- The rules, as they stood {when}, without counters."]
    loads = tuple(loads)
    if any("-m recent" in line for _, _, text in loads for line in text):
        lines.append(
            "# The lists of session affinity begin empty; whom they had, rules of this script's own lead there."
        )
    for node, command, text in loads:
        lines += ["", *_heredoc(f"inside {node} {command}", text)]
    return "\n".join([*lines, ""])


def _loads(node: str, text: str, tool: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Node, command and input of each load that a dump comes to. Of iptables there are two dumps in one: per family."""
    if text.lstrip().startswith("table "):
        yield node, "nft -f -", tuple(text.splitlines())
        return
    commands = {"": [], "6": []}  # type: dict[str, list[str]]
    family = ""
    for line in text.splitlines():
        if line.startswith("# Generated by "):
            family = "6" if line.split()[3].startswith("ip6tables") else ""
        elif line and not line.startswith("#"):
            commands[family].append(_uncounted(line))
    for family, lines in commands.items():
        if lines:
            yield node, f"ip{family}tables-{tool}-restore", tuple(lines)


def _reloads(node: str, before: str, after: str, tool: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The loads that make one dump of another, as far as they differ. nft adds to a table that is there."""
    old = list(_loads(node, before, tool))
    gone = tuple(f"delete {line.rstrip(' {')}" for line in before.splitlines() if line.startswith("table "))
    for _, command, text in list(_loads(node, after, tool)) or [(node, "nft -f -", ())]:
        if (node, command, text) not in old:
            yield node, command, (*gone, *text)


def _masquerades(plan: Plan, tool: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The rules that are the wire's own, as loads beside those of the proxy."""
    for namespace in plan.namespaces:
        for each in namespace.masquerades:
            family = "" if each.family is Family.IPV4 else "6"
            command = f"ip{family}tables-{tool}-restore --noflush"
            yield namespace.name, command, tuple(masquerade_text(each).splitlines())


def _uncounted(line: str) -> str:
    """A line without counters: neither those of rules nor nfacct(8) objects, which match everything and only count."""
    line = re.sub(r" -m nfacct --nfacct-name +\S+", "", line)
    return re.sub(r"^\[\d+:\d+\] ", "", re.sub(r"^(:.*) \[\d+:\d+\]$", r"\1 [0:0]", line))


def _files(case: str, frames: Iterable[str], verdict: ProbeVerdict) -> str:
    lines = ["# --- The probe: what is sent and expected, and the program that does it.", ""]
    lines += _heredoc("cat > /run/case/case.json", case.splitlines())
    frames = tuple(frames)
    for program in _programs(verdict, crafted=bool(frames)):
        text = program.read_text(encoding="utf-8").splitlines()
        lines += ["", *_heredoc(f"cat > /run/case/{program.name}", text)]
    if frames:
        flows = verdict.errand.flows
        about = f" (the first {MOST_FRAMES:,} of {flows:,} flows)" if flows > MOST_FRAMES else ""
        lines += ["", f"# the frames as they left {verdict.errand.sender.name}{about}"]
        lines += _heredoc("cat > /run/case/frames", frames)
    elif verdict.errand.manner is Manner.PACKET and verdict.evidence.sent:
        lines += ["", "# No whole frame was kept, so the kernel's own sockets send."]
    return "\n".join([*lines, ""])


def _programs(verdict: ProbeVerdict, *, crafted: bool) -> Iterator[Path]:
    """What the script runs: some of the programs are for few probes."""
    spared, protocol = {"step.py", "stream.py"}, verdict.errand.protocol
    if protocol is not Transport.SCTP:
        spared.add("associations.py")
    if protocol not in (Transport.SCTP, Transport.ICMP) and not (protocol is Transport.TCP and crafted):
        spared.add("raw.py")
    if not verdict.errand.http:
        spared.add("hypertext.py")
    if verdict.errand.question is None:
        spared.add("names.py")
    if verdict.probe.expect.conntrack is None:
        spared.add("tables.py")
    if not any(remembered(verdict)):
        spared.add("memory.py")
    yield from (program for program in sorted(_PROGRAMS.glob("*.py")) if program.name not in spared)


def _heredoc(command: str, lines: Iterable[str]) -> list[str]:
    return [f"{command} << 'END'", *lines, "END"]
