"""One more packet of a probe, traced through the rules.

After a failure it shall follow the flow that failed. The proxy chooses an endpoint for each connection anew, so a few
packets are sent, until one goes to that flow's endpoint.
"""

from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Evidence
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.words import TERMINATING_MODES, Manner
from proxylab.verdict.flows.flows import flows_of
from proxylab.verdict.flows.hops import last_destination
from proxylab.verdict.model import UNRESOLVED, ProbeVerdict

__all__ = ["single_packet", "trace_alike"]

_MOST_PACKETS: Final = 32
"""With three endpoints, the packet goes elsewhere once in half a million failures."""


def single_packet(resolved: ResolvedProbe, modes: Iterable[str]) -> ResolvedProbe:
    """The probe as one packet, or as one connection if a node's mode ends connections."""
    ends = not TERMINATING_MODES.isdisjoint(modes) and resolved.protocol is Transport.TCP
    return replace(resolved, flows=1, manner=Manner.CONNECT if ends else Manner.PACKET, http=False)


def trace_alike(verdict: ProbeVerdict, trace: Callable[[], tuple[ResolvedProbe, Evidence]]) -> Evidence:
    """The evidence of a traced packet that goes where the verdict's example went, or else of the first one.

    ``trace`` sends and traces one. Raises what it raises.
    """
    first = trace()
    wanted = _destination(verdict.resolved, verdict.evidence, _example(verdict))
    if verdict.overall not in UNRESOLVED or not wanted or len(verdict.resolved.receivers) < 2:
        return first[1]
    sent = first
    for _ in range(_MOST_PACKETS):
        if _destination(*sent) == wanted:
            return sent[1]
        sent = trace()
    return first[1]


def _example(verdict: ProbeVerdict) -> int:
    """The flow that reports show: the first that shows what is wrong."""
    wrong = (each.example for each in verdict.verdicts if each.judgement is verdict.overall)
    return next(wrong, None) or 0


def _destination(resolved: ResolvedProbe, evidence: Evidence, number: int = 0) -> str:
    return last_destination(flows_of(resolved, evidence)[number])
