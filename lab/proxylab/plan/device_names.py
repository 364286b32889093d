"""Names that the plan chooses: the lab's own namespaces, devices and MAC addresses.

Device names are readable, at most 15 bytes long, and unique in their namespace. The namespace of a node, pod or host
has the author's name.
"""

import hashlib
from typing import Final

from proxylab.scenario import words

ROUTER: Final = words.ROUTER
FABRIC: Final = "fabric"
OWN_NAMESPACES: Final = frozenset({ROUTER, FABRIC})

POD_BRIDGE: Final = "cni0"
"""The bridge of a node's pods, with the CNI bridge plugin's name."""
OVERLAY: Final = "flannel.1"
"""A node's VXLAN device, with flannel's name: its VXLAN network identifier is 1."""

MAX_BYTES: Final = 15
"""IFNAMSIZ of linux/if.h, less the terminating zero."""

_TAKEN_BY_THE_KERNEL: Final = frozenset(
    {
        "lo",
        # Directories below /proc/sys/net/ipv4/conf, so no device may have these names (sysctl_dev_name_is_allowed).
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
    """Chooses the device names of one namespace."""

    def __init__(self) -> None:
        self._taken = set(_TAKEN_BY_THE_KERNEL)

    def claim(self, wanted: str) -> str:
        """``wanted``, or its beginning with four hex digits of its hash if it is too long or taken.

        ``wanted`` is ASCII, as the names of Kubernetes objects are.
        """
        name, attempt = wanted, 0
        while len(name) > MAX_BYTES or name in self._taken:
            digest = hashlib.sha256(f"{wanted}\0{attempt}".encode()).hexdigest()
            name = f"{wanted[: MAX_BYTES - 5]}-{digest[:4]}"
            attempt += 1
        self._taken.add(name)
        return name


class MacAddresses:
    """Chooses MAC addresses: locally administered, and the same for the same device in every run."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def claim(self, namespace: str, device: str) -> str:
        """The address of a device, from the hash of its name; unique in the lab."""
        attempt = 0
        while True:
            digest = hashlib.sha256(f"{namespace}\0{device}\0{attempt}".encode()).digest()
            mac = ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))
            if mac not in self._taken:
                self._taken.add(mac)
                return mac
            attempt += 1
