"""Rules of mode nftables, read from the text that nft prints, in the words of iptables that explanations use.

Only what explains a packet is read: what the rule did, its comment, and the sources and devices that it leaves out. A
rule that leads on to another chain has no target here: the kernel's own verdict names that chain.
"""

import re
from typing import Final

Options = tuple[tuple[str, tuple[str, ...], bool], ...]
"""Options of iptables with their values, and whether ``!`` stood before each."""

HAIRPINS: Final = "@hairpin-connections"
"""The set of connections from an endpoint to itself, which kube-proxy masquerades."""

ENDING_MAP: Final = re.compile(r" vmap @no-endpoint-(services|nodeports)\b")
"""The maps of kube-proxy that drop or reject packets to Services without an endpoint."""

_COMMENT: Final = re.compile(r' ?comment "((?:\\.|[^"\\])*)"')
_LEFT_OUT: Final = {
    "-s": re.compile(r"\bip6? saddr != (\S+)"),
    "-i": re.compile(r'\biifname != "?([^"\s]+)"?'),
}
_TARGETS: Final = {
    "DNAT": re.compile(r"\bdnat\b"),
    "REDIRECT": re.compile(r"\bredirect\b"),
    "MASQUERADE": re.compile(r"\bmasquerade\b"),
    "SNAT": re.compile(r"\bsnat\b"),
    "REJECT": re.compile(r"\breject\b"),
    "DROP": re.compile(r"\bdrop\b"),
    "MARK": re.compile(r"\bmark set meta mark \| "),
}
_MATCHED_NAT: Final = re.compile(r"\bct status \S+")
_TO: Final = re.compile(r"\bdnat to (\[[^]]+]:\d+|\S+:\d+)$")


def read_nft(text: str) -> tuple[str, Options]:
    """The target of a rule, empty without one, and its options."""
    comment = _COMMENT.search(text)
    bare = _MATCHED_NAT.sub("", _COMMENT.sub("", text))
    options = [("--comment", (comment[1],), False)] if comment else []
    options += [(name, (found[1],), True) for name, left_out in _LEFT_OUT.items() if (found := left_out.search(bare))]
    if to := _TO.search(bare):
        options.append(("--to-destination", (to[1],), False))
    return next((target for target, does in _TARGETS.items() if does.search(bare)), ""), tuple(options)
