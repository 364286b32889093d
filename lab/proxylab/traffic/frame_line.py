"""A frame in one line of text, for ``proxylab capture``: addresses, ports, flags and lengths.

scapy dissects the frame, and this module chooses what the line says of each layer. It ignores checksums: a veth carries
them unfinished. It never raises, whatever the bytes.
"""

import logging
import struct
from typing import Any, Final

from scapy.config import conf

logging.getLogger("scapy").setLevel(logging.ERROR)
conf.route_autoload = conf.route6_autoload = False  # the machine's own routes do not matter here
from scapy.layers import inet, inet6, l2, sctp, vxlan  # noqa: E402 - reads the settings above
from scapy.packet import Padding, Raw  # noqa: E402

_KINDS: Final = {
    l2.Ether: "Ethernet type %Ether.type% ",
    inet.IP: "protocol %IP.proto% ",
    inet6.IPv6: "protocol %IPv6.nh% ",
}
"""How scapy names the kind of a payload that it does not dissect."""


def frame_line(frame: bytes) -> str:
    """Describe a frame, layer by layer. An ICMP error is followed by the packet that it quotes.

    It begins with its Ethernet header, and may be truncated anywhere.

    Example:
        >>> frame_line(bytes.fromhex("ffffffffffff020000000001" "0806" "0001080006040001" "020000000001" "0a000001"
        ...                          "000000000000" "0a000002"))
        'ARP who has 10.0.0.2 says 10.0.0.1'
    """
    try:
        whole = l2.Ether(frame)
        layers = [whole.getlayer(number) for number in range(len(whole.layers()))]
        words = [_words(layer) for layer in layers if not isinstance(layer, l2.Ether | Padding)]
    except (struct.error, IndexError, ValueError) as error:
        return f"{len(frame)} bytes that scapy cannot read: {error}"
    return " ".join(words) or f"{len(frame)} bytes"


def _words(layer: Any) -> str:
    match layer:
        case inet.IP() | inet6.IPv6():
            is_part = isinstance(layer, inet.IP) and (layer.frag or layer.flags.MF)
            return f"{layer.src} > {layer.dst}" + (f" fragment {layer.id} at {layer.frag * 8}" if is_part else "")
        case inet.TCP():
            return f"{layer.name} {layer.sport} > {layer.dport} {layer.flags} seq {layer.seq} ack {layer.ack}"
        case inet.UDP() | sctp.SCTP():
            return f"{layer.name} {layer.sport} > {layer.dport}"
        case inet.ICMP():
            return str(layer.sprintf(f"{layer.name} %{type(layer).__name__}.type% %{type(layer).__name__}.code%"))
        case vxlan.VXLAN():
            return f"VXLAN {layer.vni}"
        case inet6.ICMPv6DestUnreach():
            return str(layer.sprintf("%name% %ICMPv6DestUnreach.code%"))
        case Raw():
            unknown = _KINDS.get(type(layer.underlayer), "")
            return str(layer.underlayer.sprintf(unknown)) + f"{len(layer.load)} bytes"
        case _:
            summary = layer.mysummary()
            return str(summary[0] if isinstance(summary, tuple) else summary) or str(layer.name)
