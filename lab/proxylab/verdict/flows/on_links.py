"""What links with netem did to the packets of a probe: losses and copies that are not the proxy's.

Each end of such a link has a tap, and netem works between the two. A packet that left a device and came in nowhere has
met no further rule, so it was lost on a link. It is netem's loss if the counters of netem there account for all packets
that disappeared behind that device.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from proxylab.evidence.evidence import Direction, Evidence, LinkCount, Packet
from proxylab.evidence.words import amount, listed
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.verdict.flows.flows import Flow


def link_words(link: LinkCount) -> str:
    """A link, with what its netem does."""
    return f"the link of {link.link} ({link.netem or 'with netem until now'})"


def lost_on_links(evidence: Evidence, flows: Sequence[Flow]) -> Mapping[int, str]:
    """The flows whose request or answer a link lost, each with a clause that names the link."""
    dropping = [link for link in evidence.links if link.dropped]
    if not dropping:
        return {}
    vanished: defaultdict[str, list[int]] = defaultdict(list)
    for flow in flows:
        # A bridge floods frames to a machine from which it never gets one; the stacks of the others drop them.
        last = max((seen for seen in flow.hops if not seen.otherhost), key=lambda seen: seen.at, default=None)
        if last is not None and last.direction is Direction.OUT and last.device != STACK and not _is_over(flow):
            vanished[f"{last.netns_name}/{last.device}"].append(flow.number)
    found: dict[int, str] = {}
    for where, numbers in vanished.items():
        links = [link for link in dropping if where in link.behind]
        dropped = sum(link.dropped for link in links)
        if len(numbers) <= dropped:
            names = listed(list(dict.fromkeys(map(link_words, links))), "or")
            clause = f"{names} lost it behind {where}, where netem dropped {amount(dropped, 'packet')}"
            found |= dict.fromkeys(numbers, clause)
    return found


def _is_over(flow: Flow) -> bool:
    """Whether the sender has its answer."""
    return bool(flow.replies or flow.resets or flow.unreachables or flow.errors)


def copied_on_link(resolved: ResolvedProbe, evidence: Evidence, flow: Flow) -> bool:
    """Whether a link, and no node, copied the request of a flow, or its answer: each node passed on what came."""
    if not any(link.copies for link in evidence.links) or len(flow.reached) > 1 or flow.strays or flow.stray_replies:
        return False
    passed = [each for each in flow.passages if each.device != STACK and each.packet in (Packet.REQUEST, Packet.REPLY)]
    came = Counter((each.netns_name, each.packet) for each in passed if each.direction is Direction.IN)
    left = Counter((each.netns_name, each.packet) for each in passed if each.direction is Direction.OUT)
    return all(left[where] <= packets for where, packets in came.items() if where[0] in resolved.nodes)


def dropped_meanwhile(links: Sequence[LinkCount]) -> str:
    """The clause that links dropped packets during the probe or step; empty if none did."""
    dropping = [link for link in links if link.dropped]
    if not dropping:
        return ""
    names = listed(list(dict.fromkeys(map(link_words, dropping))))
    return f"{names} dropped {amount(sum(link.dropped for link in dropping), 'packet')} meanwhile"
