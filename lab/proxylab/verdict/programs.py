"""What of a probe came to the proxies' own processes, which end connections: by which rules, and what they discarded.

Any program of a node may accept a connection or get a datagram. It is the proxy's process where an engine's rule leads
to its port, or where the process listens at the dialled loopback address.
"""

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from proxylab.addresses import Protocol
from proxylab.evidence.evidence import Discarded, Observation
from proxylab.verdict.case import Case
from proxylab.verdict.counted_rules import DIALLED_PORT, NFT_TABLE, CountedRule, may_be_engines
from proxylab.verdict.flows.flows import Flow


def leading_to_program(case: Case) -> list[CountedRule]:
    """The engine's rules that counted, and lead what the probe dials to a process that ends connections."""
    return [
        rule
        for rule in case.rules
        if rule.count.node in case.evidence.terminating
        and rule.target in ("REDIRECT", "DNAT")
        and may_be_engines(rule.count, case.resolved)
        and rule.matched_fields(case.resolved) >= DIALLED_PORT
    ]


def listens_itself(case: Case) -> bool:
    """Whether the proxy's process listens at the dialled address itself, so that no rule leads there.

    kube-proxy 1.37 does in mode nftables, at loopback addresses (``nodePortAddresses: [localhost]``).
    """
    return case.resolved.destination.is_loopback and any(each.table == NFT_TABLE for each in case.evidence.counts)


def taken_by_others(case: Case, flows: Iterable[Flow]) -> list[Observation]:
    """The requests of these flows that a program got at a port to which no such rule leads."""
    leading = {(rule.count.node, rule.leads_to_port) for rule in leading_to_program(case)}
    got = [
        seen for flow in flows if (seen := flow.taken) is not None and seen.netns_name in case.evidence.metered_nodes
    ]
    return [seen for seen in got if (seen.netns_name, str(seen.destination_port)) not in leading]


def discarded(case: Case) -> tuple[Discarded, ...]:
    """What proxies' processes discarded of the probe's datagrams for the dialled service port.

    A process counts all that it discards. So its count stands for no more than what the taps saw come to it.
    """
    own = f"{case.resolved.service_port}/{Protocol.UDP}"
    came = Counter(got.netns_name for flow in case.flows if (got := flow.taken) is not None)
    came -= Counter(got.netns_name for got in taken_by_others(case, case.flows))
    found = (each for each in case.evidence.discarded if each.service_port == own and came[each.node])
    return tuple(replace(each, datagrams=min(each.datagrams, came[each.node])) for each in found)
