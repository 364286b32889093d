"""Whom session affinity had tied to an endpoint before a probe, in mode iptables.

Owns: ``tied``, which finds them by the rules that counted, and puts rules in the place of the kernel's lists.
Must not: know nftables, whose sets a dump of the rules holds.

A list of xt_recent is in no dump, and only the machine's root may write to one. But what it does is seen: a rule that
asks it (``--rcheck``) counts the packets of whoever is in it. Where that was every packet of a probe, each of its
clients had been tied to where it went; a rule that sends this client there does the same.
"""

import re
from collections.abc import Iterable, Iterator

from lab.ip import IPAddress
from lab.verdict.evidence import Direction, Packet
from lab.verdict.model import ProbeVerdict

__all__ = ["Load", "tied"]

_ASKS = re.compile(r"-A (\S+) .*--rcheck .*--name (\S+) ")
_ENDS = re.compile(r"-A (\S+) .*--to-destination (\S+)")
_SAID = '-m comment --comment "tied before, as a list of recent had it"'

Load = tuple[str, str, tuple[str, ...]]
"""Node, command and input."""


def tied(loads: Iterable[Load], verdict: ProbeVerdict) -> Iterator[Load]:
    """The loads, with a rule before those that ask the lists for each client that was in one."""
    ends = dict(_ends(verdict))
    for node, command, lines in loads:
        if ends and _knew_all(node, verdict):
            yield node, command, tuple(_with_ties(lines, ends))
        else:
            yield node, command, lines


def _ends(verdict: ProbeVerdict) -> Iterator[tuple[IPAddress, str]]:
    """Where each client went first, as a rule writes it."""
    for seen in reversed(verdict.evidence.observations):
        pod = seen.packet is Packet.REQUEST and seen.direction is Direction.IN
        if pod and seen.place not in verdict.errand.nodes:
            host = seen.destination if seen.destination.version == 4 else f"[{seen.destination}]"
            yield verdict.errand.sender.of(seen.flow), f"{host}:{seen.destination_port}"


def _knew_all(node: str, verdict: ProbeVerdict) -> bool:
    """Whether every flow was in a list of this node: also the first one of each client."""
    asked = sum(each.packets for each in verdict.evidence.counts if each.node == node and _ASKS.match(f"{each.text} "))
    return asked >= verdict.errand.flows


def _with_ties(lines: Iterable[str], ends: dict[IPAddress, str]) -> Iterator[str]:
    lines = tuple(lines)
    chains = {found[2]: found[1] for line in lines if (found := _ENDS.match(line))}
    asks = {found[2]: found[1] for line in lines if (found := _ASKS.match(line))}
    done: set[str] = set()
    for line in lines:
        found = _ASKS.match(line)
        if found and found[1] not in done:
            done.add(found[1])
            for client, end in ends.items():
                chain = chains.get(end, "")
                if asks.get(chain) == found[1]:
                    yield f"-A {found[1]} -s {client} {_SAID} -j {chain}"
        yield line
