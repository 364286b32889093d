"""What came otherwise than it was sent, as clauses: a proxy changes addresses and ports, and nothing else.

Also answers that one packet must not get twice: an ICMP error or a reset is the answer to one packet.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from proxylab.evidence.evidence import Altered, Evidence, Packet, Part
from proxylab.evidence.words import times
from proxylab.plan.resolved import ResolvedProbe
from proxylab.verdict.flows.flows import Flow
from proxylab.verdict.flows.on_links import copied_on_link

_ICMP = frozenset({Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP})


def altered_clauses(altered: Iterable[Altered], *, replies: bool) -> Mapping[int, str]:
    """How the replies of flows came otherwise than they were sent, or their requests and all else, by flow number."""
    found = defaultdict[int, list[Altered]](list)
    for each in altered:
        if (each.packet is Packet.REPLY) is replies:
            found[each.flow].append(each)
    return {flow: _clause(several) for flow, several in found.items()}


def data_changed(what: str, at: str = "") -> str:
    """The clause that a request, a reply or an error came with other data than it was sent, as far as known where."""
    return f"the data of the {what} had changed on the way{at and f' when it came to {at}'}"


def turned_away_again(resolved: ResolvedProbe, evidence: Evidence, flow: Flow) -> str:
    """The clause that more resets or ICMP errors came than packets were sent; empty if each answers one."""
    heard, sent = max(len(flow.resets), len(flow.unreachables) + len(flow.errors)), max(1, len(flow.departures))
    if heard <= sent or copied_on_link(resolved, evidence, flow):
        return ""
    kind = "a reset" if len(flow.resets) == heard else "an ICMP error"
    return f"{resolved.sender.name} sent it {times(sent)}, and heard {kind} {times(heard)}"


def _clause(several: Sequence[Altered]) -> str:
    first = several[0]
    what = "reset" if first.packet is Packet.RESET else "ICMP error" if first.packet in _ICMP else str(first.packet)
    at = f"{first.netns_name}/{first.device}" if first.device else first.netns_name
    if first.part is Part.DATA:
        return data_changed(what, at)
    if first.part is Part.CHECKSUM:
        return f"the {what} came to {at} with a wrong IP checksum"
    return f"the {what} quotes another packet than was sent: {first.seen}, not {first.sent}"
