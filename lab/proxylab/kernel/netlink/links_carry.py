"""Waiting until links carry: the first gate of every build.

A veth that has come up has a carrier event pending. Until linkwatch (net/core/link_watch.c) has handled it, the device
has the no-op queue and a bridge port does not forward: the first packet after a build is lost now and then. From kernel
6.8 on, RTM_GETLINK for one device handles that device's event at once (``rtnl_getlink`` calls ``linkwatch_sync_dev``),
which costs microseconds. Ports come before their bridges, whose state follows from the ports. Before 6.8 the module
sends frames over each link until one arrives.
"""

import os
import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Final

from proxylab.errors import InternalError
from proxylab.kernel.netlink.requests import get_link
from proxylab.kernel.netlink.socket import Netlink
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.model import Device, LinkEnd, Plan, Veth, ends_by_namespace

_SYNC_ON_GETLINK: Final = (6, 8)
_ETHERTYPE: Final = 0x88B5  # IEEE 802 local experimental ethertype 1: no protocol of the lab
_PATIENCE: Final = 5.0


def kernel_release() -> tuple[int, int]:
    """Major and minor version of the running kernel."""
    match = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def make_links_carry(
    plan: Plan,
    namespaces: Mapping[str, NetNs],
    routes: Mapping[str, Netlink],
    *,
    release: tuple[int, int] | None = None,
    patience: float = _PATIENCE,
) -> None:
    """Return when every link of ``plan`` passes packets both ways.

    ``release`` is the kernel's version, ``patience`` the seconds that a link may take on kernels before 6.8.

    Raises:
        InternalError: no frame arrived over a link in time; names the link (kernels before 6.8 only).
    """
    if (release or kernel_release()) >= _SYNC_ON_GETLINK:
        ports = ends_by_namespace(plan)
        for namespace in plan.namespaces:
            devices: list[Device] = [*ports[namespace.name], *namespace.bridges, *namespace.vxlans]
            routes[namespace.name].send([get_link(device) for device in devices])
        return
    with ExitStack() as stack:
        for link in plan.links:
            for sender, receiver in _ways(link):
                _pass_a_frame(stack, namespaces, sender, receiver, patience)


def _ways(link: Veth) -> Iterator[tuple[LinkEnd, tuple[str, str]]]:
    """Each direction of a link: the end to send on, and the device on which the frame must arrive.

    A frame into a bridge must arrive on the bridge device itself, which proves that the port forwards.
    """
    for near, far in (link.ends, link.ends[::-1]):
        if near.master is None:
            yield near, (far.namespace, far.master or far.device)


def _pass_a_frame(
    stack: ExitStack, namespaces: Mapping[str, NetNs], sender: LinkEnd, receiver: tuple[str, str], patience: float
) -> None:
    """Send a frame until one arrives: a link that does not carry yet loses frames."""
    outgoing = _packet_socket(stack, namespaces[sender.namespace], sender.device)
    incoming = _packet_socket(stack, namespaces[receiver[0]], receiver[1])
    frame = b"\xff" * 6 + bytes.fromhex(sender.mac.replace(":", "")) + struct.pack("!H", _ETHERTYPE) + bytes(46)
    deadline = time.monotonic() + patience
    incoming.settimeout(0.001)
    while time.monotonic() < deadline:
        with suppress(OSError):  # ENETDOWN: the device is not up yet
            outgoing.send(frame)
        try:
            while incoming.recv(2048)[6:14] != frame[6:14]:
                pass
        except TimeoutError:
            continue
        return
    raise InternalError(
        f"no frame from {sender.namespace}/{sender.device} reached {receiver[0]}/{receiver[1]} in {patience:.1f} s"
    )


def _packet_socket(stack: ExitStack, netns: NetNs, device: str) -> socket.socket:
    with inside(netns):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    stack.enter_context(made)
    made.bind((device, _ETHERTYPE))
    return made
