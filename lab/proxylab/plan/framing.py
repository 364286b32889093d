"""Whom a frame is for, where a probe chooses.

Owns: the MAC address that ``send.frameTo`` comes to.
Must not: know routes; whoever is on the link can be sent a frame, whatever it then does with the packet.
"""

from collections.abc import Mapping

from proxylab.plan.dialled import UnresolvableError
from proxylab.plan.forwarding import on_segment
from proxylab.plan.model import Namespace, Plan, PodPlacement

__all__ = ["frame_mac"]


def frame_mac(
    plan: Plan, sender: tuple[str, str], frame_to: str, placements: Mapping[str, Namespace | PodPlacement]
) -> str:
    """The address that frames from the device of ``sender`` (namespace, device) bear; empty without a choice.

    Raises:
        UnresolvableError: whoever is meant has no device on the sender's link. The message says who has.
    """
    if not frame_to or ":" in frame_to:
        return frame_to
    placement = placements.get(frame_to)
    wanted = placement.namespace if isinstance(placement, PodPlacement) else frame_to
    there = list(on_segment(plan, *sender))
    for end in there:
        if end.namespace == wanted:
            return end.mac
    known = ", ".join(dict.fromkeys(end.namespace for end in there)) or "nobody"
    raise UnresolvableError(f"send.frameTo: {frame_to} is not on the link of {sender[0]}/{sender[1]}; there: {known}")
