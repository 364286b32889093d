"""The names the plan gives: namespaces of the lab's own, and devices.

Owns: reserved names, and device names that are readable, at most 15 bytes long and unique in their namespace.
Must not: rename what the author named; a node, pod or host has its own name as its namespace's.
"""

import hashlib
from typing import Final

__all__ = [
    "FABRIC",
    "NODES",
    "OUTSIDE",
    "OWN_NAMESPACES",
    "ROUTER",
    "UPLINK",
    "DeviceNames",
]

ROUTER: Final = "router"
FABRIC: Final = "fabric"
OWN_NAMESPACES: Final = frozenset({ROUTER, FABRIC})

NODES: Final = "nodes"
"""The segment of the nodes: the bridge in the fabric, and the router's leg on it."""
OUTSIDE: Final = "outside"
"""The segment of the outside hosts: the bridge in the fabric, and the router's leg on it."""
UPLINK: Final = "eth0"
"""The one device of a pod or host, and a node's device on its segment."""

MAX_BYTES: Final = 15
"""IFNAMSIZ of linux/if.h, less the terminating zero."""

_TAKEN_BY_THE_KERNEL: Final = frozenset(
    {
        "lo",
        # Directories below /proc/sys/net/ipv4/conf, so no device may bear them (sysctl_dev_name_is_allowed).
        "all",
        "default",
        # Fallback devices that tunnel modules make in every new namespace (net.core.fb_tunnels_only_for_init_net).
        "tunl0",
        "gre0",
        "gretap0",
        "erspan0",
        "ip_vti0",
        "ip6_vti0",
        "sit0",
        "ip6tnl0",
        "ip6gre0",
    }
)


class DeviceNames:
    """Hands out the device names of one namespace."""

    def __init__(self) -> None:
        self._taken = set(_TAKEN_BY_THE_KERNEL)

    def claim(self, wanted: str) -> str:
        """``wanted``, or its beginning with four hex digits of its hash where it is too long or already taken.

        ``wanted`` is ASCII, as the names of Kubernetes objects are.
        """
        name, attempt = wanted, 0
        while len(name) > MAX_BYTES or name in self._taken:
            digest = hashlib.sha256(f"{wanted}\0{attempt}".encode()).hexdigest()
            name = f"{wanted[: MAX_BYTES - 5]}-{digest[:4]}"
            attempt += 1
        self._taken.add(name)
        return name
