"""Session affinity on a slow machine: clients that came back after ``timeoutSeconds``, so that a proxy may forget them.

The author chose the waits of a scenario so that its clients come back in time. If the lab itself takes longer, another
pod shows nothing about the proxy. A proxy that forgets clients early sends them to another pod in time.
"""

from collections.abc import Collection, Sequence
from functools import partial

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import EarlierConnection, Evidence, Observation
from proxylab.plan.resolved import Receiver, ResolvedProbe
from proxylab.verdict.flows.flows import Flow

_SECOND = 1e9
"""In nanoseconds."""


def came_too_late(
    resolved: ResolvedProbe, evidence: Evidence, flows: Sequence[Flow], backends: Collection[str]
) -> dict[int, str]:
    """The flows to pods outside the expected ``backends`` whose client the proxy may have forgotten; a clause for each.

    Only a client whose last pod is an expected one must be remembered. The time is the longest that a client can have
    been away: from the departure of its last connection to the arrival of this one at a pod.
    """
    timeout = resolved.affinity_timeout
    if timeout is None:
        return {}
    remembered = [each for each in resolved.receivers if each.name in backends]
    remembered_at = {each.client: each for each in evidence.earlier if any(map(partial(_is_of, each), remembered))}
    if not remembered_at:
        return {}
    began = sorted(
        (flow for flow in flows if flow.departures and flow.arrivals), key=lambda flow: flow.departures[0].at
    )
    away: dict[IPAddress, float] = {}
    moved: dict[IPAddress, tuple[IPAddress, int]] = {}
    numbers = []
    for flow in began:
        client, end = resolved.sender.address_of_flow(flow.number), _end(flow.arrivals[0])
        if client not in away:
            earlier = remembered_at.get(client)
            away[client] = 0.0 if earlier is None else (flow.arrivals[0].at - earlier.at) / _SECOND
            if earlier is not None and away[client] > timeout and end != (earlier.address, earlier.port):
                moved[client] = end
        if moved.get(client) == end and not set(flow.reached) <= set(backends):
            numbers.append(flow.number)
    longest = max((away[client] for client in moved), default=0.0)
    clause = f"its client was away for up to {longest:.1f} s, and timeoutSeconds is {timeout}"
    return dict.fromkeys(numbers, clause)


def _is_of(earlier: EarlierConnection, pod: Receiver) -> bool:
    return earlier.address == pod.address and (not pod.ports or earlier.port in pod.ports)


def _end(arrival: Observation) -> tuple[IPAddress, int]:
    return arrival.destination, arrival.destination_port
