"""Resolve ``send.frameTo`` to a MAC address: any device on the sender's link may get the frame."""

from collections.abc import Mapping

from proxylab.plan.dialled import UnresolvableError
from proxylab.plan.forwarding import on_segment
from proxylab.plan.model import Namespace, Plan, PodPlacement

__all__ = ["frame_mac"]


def frame_mac(
    plan: Plan, sender: tuple[str, str], frame_to: str, placements: Mapping[str, Namespace | PodPlacement]
) -> str:
    """The destination MAC of frames from the device of ``sender`` (namespace, device); empty without a choice.

    Raises:
        UnresolvableError: the receiver has no device on the sender's link. The message lists the machines that have.
    """
    if not frame_to or ":" in frame_to:
        return frame_to
    placement = placements.get(frame_to)
    wanted = placement.namespace if isinstance(placement, PodPlacement) else frame_to
    there = list(on_segment(plan, *sender))
    for end in there:
        if end.namespace == wanted:
            return end.mac
    known = ", ".join(dict.fromkeys(end.namespace for end in there)) or "none"
    link = f"{sender[0]}/{sender[1]}"
    raise UnresolvableError(f"send.frameTo: {frame_to} is not on the link of {link}; on the link: {known}")
