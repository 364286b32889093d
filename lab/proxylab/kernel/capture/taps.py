"""Taps: packet sockets that capture and send frames on one device.

A tap does not make its device promiscuous: a promiscuous port takes frames to other MACs, which repairs a broken
hairpin that a scenario may test (``br_pass_frame_up`` and ``eth_type_trans``).

Three facts of packet(7) and net/packet/af_packet.c shape this module:

* A socket made for ETH_P_ALL receives from every device until its bind, and the bind then waits for an RCU grace period
  (8 to 16 ms). A socket made for protocol 0 receives nothing, and its first bind costs microseconds.
* Closing a receiving socket waits for a grace period. A tap lives as long as its lab, and no probe closes it.
* A socket never receives the frames that it sent itself (``skb_loop_sk``). So a tap sends through a second socket,
  bound to protocol 0, and captures its own frames like all others.
"""

import ctypes
import fcntl
import socket
import struct
from itertools import chain, islice
from typing import Final

from proxylab.kernel.capture.batches import Frame, FrameReader
from proxylab.kernel.netlink.buffers import raise_receive_buffer
from proxylab.kernel.sandbox.netns import NetNs, inside

# include/uapi/linux/if_ether.h, if_packet.h, socket.h; asm-generic/socket.h
_ETH_P_ALL: Final = 0x0003
_SOL_PACKET: Final = 263
_PACKET_STATISTICS: Final = 6
_SO_ATTACH_FILTER: Final = 26
_SO_TIMESTAMPNS: Final = 35

_SIOCGIFHWADDR: Final = 0x8927
_WITH_ETHERNET: Final = frozenset({1, 772})  # ARPHRD_ETHER, ARPHRD_LOOPBACK: include/uapi/linux/if_arp.h

_IFREQ: Final = struct.Struct("=16sH22x")  # struct ifreq: the name, and of the address its family
_STATISTICS: Final = struct.Struct("=II")  # struct tpacket_stats: tp_packets, tp_drops
_SOCK_FPROG: Final = struct.Struct("@HP")  # struct sock_fprog: length in steps, address
_STEP_BYTES: Final = 8  # struct sock_filter
_BATCHES: Final = 1024
WANTED_BUFFER: Final = 16 << 20
"""The receive buffer that a tap requests, in bytes of ``truesize``."""


class Tap:
    """Captures and sends frames on one device. ``open_tap`` makes it. Never blocks."""

    def __init__(
        self, netns_name: str, device: str, receiving: socket.socket, sending: socket.socket, reader: FrameReader
    ) -> None:
        self.netns_name = netns_name
        self.device = device
        self.buffer_bytes = raise_receive_buffer(receiving, WANTED_BUFFER)
        self._receiving = receiving
        self._sending = sending
        self._reader = reader

    def fileno(self) -> int:
        """The descriptor, readable while frames wait."""
        return self._receiving.fileno()

    def drain(self) -> list[Frame]:
        """The waiting frames, oldest first, with those that arrive meanwhile, up to the size of one buffer."""
        return list(chain.from_iterable(islice(self._reader.read(self._receiving), _BATCHES)))

    def take_lost(self) -> int:
        """How many frames the kernel dropped at a full buffer since the last call, which resets its counter."""
        raw = self._receiving.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        return int(_STATISTICS.unpack(raw)[1])

    def attend(self, interest: bytes) -> None:
        """Set another filter for frames (see ``open_tap``). Waiting frames stay."""
        attach_filter(self._receiving, interest)

    def send(self, frame: bytes) -> None:
        """Send a frame on the device, below the namespace's own OUTPUT rules.

        Raises:
            OSError: EMSGSIZE for a frame above the MTU, ENOBUFS, ENETDOWN.
        """
        self._sending.send(frame)

    def close(self) -> None:
        """Close both sockets. This waits for an RCU grace period, so only the end of a lab does it."""
        self._receiving.close()
        self._sending.close()


def open_tap(
    netns: NetNs, netns_name: str, device: str, interest: bytes = b"", reader: FrameReader | None = None
) -> Tap:
    """A tap on ``device`` of ``netns``.

    Args:
        netns: the namespace of the device.
        netns_name: the name of the namespace in observations.
        device: the name of the device.
        interest: a classic BPF program as an array of ``struct sock_filter``. Frames that it rejects are neither kept
            nor counted as lost. Empty: keep every frame.
        reader: a reader that several taps may share, if the caller reads them one after another.

    Raises:
        OSError: ENODEV for an unknown device, EPERM without CAP_NET_RAW over the namespace.
    """
    with inside(netns):
        receiving = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        sending = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        # A socket resolves a device's name in the namespace that it was made in, so bind(2) works from outside.
        receiving.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        if interest:
            attach_filter(receiving, interest)
        sending.bind((device, 0))
        tap = Tap(netns_name, device, receiving, sending, reader or FrameReader())
        receiving.bind((device, _ETH_P_ALL))
    except OSError:
        receiving.close()
        sending.close()
        raise
    return tap


def ethernet_devices(netns: NetNs) -> list[str]:
    """The devices of a namespace whose frames begin with an Ethernet header, in the kernel's order.

    A module such as ipip or sit adds a device without one to every namespace.
    """
    with inside(netns):
        names = [name for _, name in socket.if_nameindex()]
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with asking:
        answers = ((name, fcntl.ioctl(asking, _SIOCGIFHWADDR, _IFREQ.pack(name.encode(), 0))) for name in names)
        return [name for name, answer in answers if _IFREQ.unpack(answer)[1] in _WITH_ETHERNET]


def attach_filter(sock: socket.socket, program: bytes) -> None:
    """Let ``sock`` receive only the frames that a classic BPF program accepts (SO_ATTACH_FILTER, socket(7)).

    Raises:
        OSError: EINVAL for an invalid program.
    """
    steps = ctypes.create_string_buffer(program, len(program))
    sock.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, _SOCK_FPROG.pack(len(program) // _STEP_BYTES, ctypes.addressof(steps))
    )
