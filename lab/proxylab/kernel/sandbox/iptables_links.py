"""Which iptables and nft commands in a node, pod or host find under these names.

The two variants of iptables, legacy and nft, do not see each other's rules. The machine calls one of them ``iptables``,
and that need not be the one that loads the lab's rules. Then ``iptables-save`` in a node would print empty tables, and
kube-proxy, which runs the ``iptables`` of its PATH, would program the wrong ones. So the lab puts links to its chosen
variant first in PATH. ``kernel.netfilter.iptables_tool`` chooses the variant. A scenario may name other programs for a
node (``programs``): then the links lead to those.
"""

import shutil
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The default PATH of commands."""

FOLDER: Final = "/run/iptables"
"""Where the links are."""

_FAMILIES: Final = ("iptables", "ip6tables")
_VERBS: Final = ("", "-save", "-restore")

CHOSEN_FIRST: Final = f"{FOLDER}:{PATH}"
"""A PATH with the links before the machine's own programs."""


def links_to(variant: str, programs: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The path of each link, and the program of this machine that it points to.

    ``programs`` are those that a scenario names for the node, by the name of the tool. One for iptables has the names
    of its variant, too.
    """
    if named := programs.get("iptables"):
        names = [f"{name}{kind}{verb}" for name in _FAMILIES for kind in ("", f"-{variant}") for verb in _VERBS]
        found: dict[str, str | None] = dict.fromkeys(names, named)
    else:
        wanted = {f"{name}{verb}": f"{name}-{variant}{verb}" for name in _FAMILIES for verb in _VERBS}
        found = {name: shutil.which(program, path=PATH) for name, program in wanted.items()}
    found["nft"] = programs.get("nft")
    return {f"{FOLDER}/{name}": path for name, path in found.items() if path is not None}
