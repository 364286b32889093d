"""The checks of ``send.frameTo`` that need only the file. ``proxylab.plan.framing`` checks who shares a link."""

from proxylab.addresses import Transport
from proxylab.scenario.model import Manner
from proxylab.scenario.subject import Subject

__all__ = ["check_frame"]


def check_frame(subject: Subject) -> None:
    """Note a frame that the probe cannot send, or that has no receiver."""
    source, send, problems, inventory = subject.probe.source, subject.probe.send, subject.problems, subject.inventory
    if send is None or send.frame_to is None:
        return
    location = subject.location["send"]["frameTo"]
    if send.manner is Manner.CONNECT and send.protocol is not Transport.ICMP:
        what = "kernel sockets send frames to the next hop that routing gives"
        problems.add(location.key, what, allowed="needed: as: packet")
    if source is not None and source.name in inventory.nodes:
        what = f"a packet of the node {source.name} has no frame until it has passed the node's rules"
        problems.add(location.key, what, allowed="send from a pod or an outside host")
    if ":" not in send.frame_to and send.frame_to not in inventory.senders:
        inventory.refuse(location.spot, send.frame_to, "a node, pod or host", inventory.senders, problems)
