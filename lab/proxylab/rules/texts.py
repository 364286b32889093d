"""The rule of a text, whichever tool printed it. All probes of a lab ask for the same rules, so they are read once."""

from functools import lru_cache
from typing import Final

from proxylab.rules import iptables, ipvs, nftables
from proxylab.rules.effects import Effects, effects
from proxylab.rules.packets import Answer, Packets, matches
from proxylab.rules.rule import Rule, Tool

_PRINTERS: Final = {
    Tool.IPTABLES: iptables.print_rule,
    Tool.IPVSADM: ipvs.print_rule,
    Tool.NFT: nftables.print_rule,
}


@lru_cache(maxsize=4096)
def read_rule(text: str) -> Rule | None:
    """The rule of a text of any tool; ``None`` for a line of iptables or ipvsadm that cannot be read."""
    if text.startswith(("-A -", "-a -")):
        return ipvs.read_rule(text)
    return iptables.read_rule(text) if text.startswith(("-A ", "-I ", "-P ")) else nftables.read_rule(text)


def print_rule(rule: Rule) -> str:
    """The rule as its tool prints it."""
    return _PRINTERS[rule.tool](rule)


@lru_cache(maxsize=4096)
def effects_of(text: str) -> Effects:
    """What the rule of a text does to packets that match it; no effect is known of a text that cannot be read."""
    rule = read_rule(text)
    return frozenset() if rule is None else effects(rule)


def excludes(text: str, packets: Packets) -> bool:
    """Whether such packets cannot match the rule of a text. One that cannot be read excludes nothing."""
    rule = read_rule(text)
    return rule is not None and matches(rule, packets) is Answer.NO
