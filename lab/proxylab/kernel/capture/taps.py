"""Taps: what crosses one device, seen and sent by packet sockets.

Owns: ``Tap``, its kernel buffer, and the honest count of what did not fit into it.
Must not: dissect frames, or make a device promiscuous. A promiscuous port takes frames that are not its own, which
cures the broken hairpin that somebody may be looking for (``br_pass_frame_up`` and ``eth_type_trans``).

Three facts of packet(7) and net/packet/af_packet.c shape this module:

* A socket made for ETH_P_ALL listens to every device until it is bound, and the bind then waits for an RCU grace
  period (8 to 16 ms). Made for protocol 0 it hears nothing, and its first bind costs microseconds.
* Closing a socket that listens waits for a grace period. A tap lives as long as its lab and is never closed per probe.
* A socket never hears the frames that it sent itself (``skb_loop_sk``). A tap therefore sends through a second socket,
  bound to protocol 0, so that its own frames are witnessed by the kernel like all others.
"""

import ctypes
import socket
import struct
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from proxylab.kernel.capture.batches import Frame, FrameReader, Slots
from proxylab.kernel.netlink.buffers import raise_receive_buffer
from proxylab.kernel.sandbox.netns import NetNs, inside

__all__ = ["WANTED_BUFFER", "Tap", "attach_filter", "open_tap"]

# include/uapi/linux/if_ether.h, if_packet.h, socket.h; asm-generic/socket.h
_ETH_P_ALL: Final = 0x0003
_SOL_PACKET: Final = 263
_PACKET_STATISTICS: Final = 6
_SO_ATTACH_FILTER: Final = 26
_SO_TIMESTAMPNS: Final = 35

_STATISTICS: Final = struct.Struct("=II")  # struct tpacket_stats: tp_packets, tp_drops
_SOCK_FPROG: Final = struct.Struct("@HP")  # struct sock_fprog: length in steps, address
_STEP_BYTES: Final = 8  # struct sock_filter
_BATCHES: Final = 1024
WANTED_BUFFER: Final = 16 << 20
"""The receive buffer that a tap asks for, in bytes of ``truesize``."""


class Tap:
    """Ears and a mouth on one device. Made by ``open_tap``; non-blocking throughout."""

    def __init__(
        self, netns_name: str, device: str, ears: socket.socket, mouth: socket.socket, reader: FrameReader
    ) -> None:
        self.netns_name = netns_name
        self.device = device
        self.buffer_bytes = raise_receive_buffer(ears, WANTED_BUFFER)
        self._ears = ears
        self._mouth = mouth
        self._reader = reader

    def fileno(self) -> int:
        """The descriptor that is readable while frames wait."""
        return self._ears.fileno()

    def drain(self) -> list[Frame]:
        """The frames that wait, oldest first. What comes while it reads is read, too, as far as one buffer goes."""
        return list(chain.from_iterable(islice(self._reader.read(self._ears), _BATCHES)))

    def slots(self) -> Iterator[Slots]:
        """As ``drain``, but as they lie in the reader's memory: each batch is valid until the next, of any tap."""
        yield from islice(self._reader.slots(self._ears), _BATCHES)

    def lost(self) -> int:
        """How many frames found the buffer full since this was last asked. Asking resets the kernel's counter."""
        raw = self._ears.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
        return int(_STATISTICS.unpack(raw)[1])

    def attend(self, interest: bytes) -> None:
        """Want other frames from now on (see ``open_tap``); those that wait stay."""
        attach_filter(self._ears, interest)

    def send(self, frame: bytes) -> None:
        """Put a frame on the wire, below the namespace's own OUTPUT rules.

        Raises:
            OSError: EMSGSIZE for a frame above the MTU, ENOBUFS, ENETDOWN.
        """
        self._mouth.send(frame)

    def close(self) -> None:
        """Close both sockets. Waits for an RCU grace period: for the end of a lab only."""
        self._ears.close()
        self._mouth.close()


def open_tap(
    netns: NetNs, netns_name: str, device: str, interest: bytes = b"", reader: FrameReader | None = None
) -> Tap:
    """A tap on ``device`` of ``netns``.

    Args:
        netns: where the device is.
        netns_name: the name that observations will bear.
        device: the name of the device.
        interest: a classic BPF program as an array of ``struct sock_filter``; frames that it does not want are neither
            kept nor counted as lost. Empty: every frame is wanted.
        reader: taps that are read one after another may share one, and its memory.

    Raises:
        OSError: ENODEV where there is no such device, EPERM without CAP_NET_RAW over the namespace.
    """
    with inside(netns):
        ears = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        mouth = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        # A socket resolves a device's name in the namespace it was made in, so the binds need not be inside.
        ears.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        if interest:
            attach_filter(ears, interest)
        mouth.bind((device, 0))
        tap = Tap(netns_name, device, ears, mouth, reader or FrameReader())
        ears.bind((device, _ETH_P_ALL))
    except OSError:
        ears.close()
        mouth.close()
        raise
    return tap


def attach_filter(sock: socket.socket, program: bytes) -> None:
    """Let ``sock`` receive only what a classic BPF program wants (SO_ATTACH_FILTER, socket(7)).

    Raises:
        OSError: EINVAL for a program that the kernel does not accept.
    """
    steps = ctypes.create_string_buffer(program, len(program))
    sock.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, _SOCK_FPROG.pack(len(program) // _STEP_BYTES, ctypes.addressof(steps))
    )
