"""Rules whose own matches exclude a flow's packets: whatever such a rule counted, it did nothing to them."""

from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Packet
from proxylab.rules.packets import Packets
from proxylab.rules.texts import excludes
from proxylab.verdict.causes.failure import Failure


def without_excluded(failure: Failure, *kinds: Packet) -> Failure:
    """The failure without the rules that can have matched no packet of the flow in any of these directions.

    A node may have translated a packet before the rule or behind it, so each address that it ever had counts. Nothing
    is excluded where a tunnel carries it, since a rule may match the tunnel's packet.
    """
    case = failure.case
    if failure.plan is not None and any(each.vxlans for each in failure.plan.namespaces):
        return failure
    ways = [_possible(failure, kind) for kind in kinds]

    def may_match(text: str) -> bool:
        return any(not excludes(text, way) for way in ways)

    counts = [each for each in case.evidence.counts if may_match(each.text)]
    foreign = [each for each in case.evidence.foreign if may_match(each.text)]
    return replace(failure, case=case.with_rules(counts, foreign))


def _possible(failure: Failure, kind: Packet) -> Packets:
    """What packets of one direction had. ICMP errors come from anywhere."""
    if kind is Packet.OTHER_ICMP:
        return Packets({Transport.ICMP})
    case, there = failure.case, kind is Packet.REQUEST
    client, (service, port) = case.resolved.sender.address_of_flow(failure.flow.number), case.dialled
    seen = [each for each in failure.flow.hops if each.packet is kind]
    # No tap sees a packet that a rule ended between its translation and the device by which it would have left.
    pods = [rule.translates_to for rule in case.translations if rule.translates_to is not None]
    ends = ([address for address, _ in pods], [number for _, number in pods])
    return Packets(
        protocols={case.resolved.protocol},
        sources={*((client,) if there else (service, *ends[0])), *(each.source for each in seen)},
        destinations={*((service, *ends[0]) if there else (client,)), *(each.destination for each in seen)},
        source_ports={*(() if there else (port, *ends[1])), *(each.source_port for each in seen)},
        destination_ports={*((port, *ends[1]) if there else ()), *(each.destination_port for each in seen)},
    )
