"""Which iptables commands in a node, pod or host find under the name ``iptables``.

The two variants of iptables, legacy and nft, do not see each other's rules. The machine calls one of them ``iptables``,
and that need not be the one that loads the lab's rules. Then ``iptables-save`` in a node would print empty tables, and
kube-proxy, which runs the ``iptables`` of its PATH, would program the wrong ones. So the lab puts links to its chosen
variant first in PATH. ``kernel.netfilter.iptables_tool`` chooses the variant.
"""

import shutil
from typing import Final

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The default PATH of commands."""

_FOLDER: Final = "/run/iptables"
_VERBS: Final = ("", "-save", "-restore")

CHOSEN_FIRST: Final = f"{_FOLDER}:{PATH}"
"""A PATH with the links before the machine's own programs."""


def links_to(variant: str) -> dict[str, str]:
    """The path of each link, and the program of this machine that it points to."""
    families = ("iptables", "ip6tables")
    wanted = {f"{name}{verb}": f"{name}-{variant}{verb}" for name in families for verb in _VERBS}
    found = {name: shutil.which(program, path=PATH) for name, program in wanted.items()}
    return {f"{_FOLDER}/{name}": path for name, path in found.items() if path is not None}
