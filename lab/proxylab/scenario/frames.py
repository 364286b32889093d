"""Frames to a chosen neighbour: what a probe with ``send.frameTo`` may say.

Owns: the checks of that key, as far as the file alone tells.
Must not: know who is on whose link (``proxylab.plan.framing`` does, once a case is laid out).
"""

from proxylab.addresses import Transport
from proxylab.scenario.model import Manner
from proxylab.scenario.subject import Subject

__all__ = ["check_frame"]


def check_frame(subject: Subject) -> None:
    """Note a frame that nobody can send, or that is for nobody."""
    source, send, problems, inventory = subject.probe.source, subject.probe.send, subject.problems, subject.inventory
    if send is None or send.frame_to is None:
        return
    location = subject.location["send"]["frameTo"]
    if send.manner is Manner.CONNECT and send.protocol is not Transport.ICMP:
        what = "a kernel's sockets leave it to routing whom their frames are for"
        problems.add(location.key, what, allowed="needed: as: packet")
    if source is not None and source.name in inventory.nodes:
        what = f"what the node {source.name} sends has no frame before its rules have seen it"
        problems.add(location.key, what, allowed="let a pod or an outside host send it")
    if ":" not in send.frame_to and send.frame_to not in inventory.senders:
        inventory.refuse(location.spot, send.frame_to, "a place", inventory.senders, problems)
