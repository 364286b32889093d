"""What commands in a place find under the name ``iptables``.

Owns: the links that lead to the variant of iptables that the lab has chosen, and the PATH that finds them first.
Must not: choose a variant (``kernel.rules`` does), or start a command.

The two variants do not see each other's rules. The machine calls one of them ``iptables``, which need not be the one
that loads the lab's rules: ``iptables-save`` in a node would then print empty tables, and kube-proxy, which runs
whatever PATH calls ``iptables``, would program the wrong ones.
"""

import shutil
from typing import Final

__all__ = ["CHOSEN_FIRST", "PATH", "links_to"]

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where commands look for others, unless they are told otherwise."""

_FOLDER: Final = "/run/iptables"
_VERBS: Final = ("", "-save", "-restore")

CHOSEN_FIRST: Final = f"{_FOLDER}:{PATH}"
"""A PATH on which the links come before the machine's own programs."""


def links_to(variant: str) -> dict[str, str]:
    """The path of each link, and the program of this machine that it leads to.

    Args:
        variant: of iptables, ``legacy`` or ``nft``.
    """
    families = ("iptables", "ip6tables")
    wanted = {f"{name}{verb}": f"{name}-{variant}{verb}" for name in families for verb in _VERBS}
    found = {name: shutil.which(program, path=PATH) for name, program in wanted.items()}
    return {f"{_FOLDER}/{name}": path for name, path in found.items() if path is not None}
