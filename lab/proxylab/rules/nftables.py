"""Rules in the words of nft: one line of ``nft list``, without its handle.

nft prints conditions and statements in the order in which the kernel runs them. A value may be a set in braces, a named
set (``@…``), a range, or several values joined by ``.``; a statement may look its value up in a map.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from proxylab.rules.rule import Action, Match, Rule, Tool

_WORD: Final = re.compile(r'(?:"(?:\\.|[^"\\])*"|\{(?:"(?:\\.|[^"\\])*"|[^{}"])*\}|\([^()]*\)|[^\s{}()"])+|\S')
"""A word, or words in quotes, braces or parentheses, which nft may join: ``"08:00"-"17:00"``."""

_HEADERS: Final = frozenset({
    "ah", "arp", "comp", "ct", "dccp", "dst", "esp", "ether", "exthdr", "frag", "geneve", "gre", "gretap", "hbh",
    "icmp", "icmpv6", "igmp", "ip", "ip6", "meta", "mh", "rt", "sctp", "srh", "tcp", "th", "tunnel", "udp", "udplite",
    "vlan", "vxlan"
})  # fmt: skip
"""Headers of a packet, and what the kernel knows of it: the word behind each names a field."""
_ALONE: Final = frozenset({
    "iif", "iifgroup", "iifname", "iiftype", "oif", "oifgroup", "oifname", "oiftype"
})  # fmt: skip
_LONG: Final = {
    "fib": frozenset({"type", "oif", "oifname"}),
    "ipsec": frozenset({"reqid", "spi", "saddr", "daddr"}),
    "osf": frozenset({"name", "version"}),
    "socket": frozenset({"transparent", "mark", "wildcard", "level"}),
    "xt": frozenset({"match"}),
}
"""Expressions of several words, and the words that end them."""
_TUNNELS: Final = frozenset({"geneve", "gre", "gretap", "vxlan"})
_NUMBERS: Final = frozenset({"numgen", "jhash", "symhash"})
"""Numbers that the kernel makes itself: ``numgen random mod 2 offset 1``."""
_EXPRESSIONS: Final = _HEADERS | _ALONE | _LONG.keys() | _NUMBERS

_TRANSLATING: Final = frozenset({"dnat", "dup", "fwd", "masquerade", "redirect", "snat", "tproxy"})
"""Statements with an address or a device."""
_WITH_ONE: Final = frozenset({"comment", "goto", "jump"})
_STATEMENTS: Final = _TRANSLATING | _WITH_ONE | {
    "accept", "add", "continue", "counter", "delete", "drop", "flow", "last", "limit", "log", "notrack", "queue",
    "quota", "reject", "return", "synproxy", "update"
}  # fmt: skip
_FLAGS: Final = frozenset({"random", "fully-random", "netmap", "persistent"})
_OPERATORS: Final = frozenset({"!=", "==", "<", ">", "<=", ">=", "!"})
_JOINS: Final = frozenset({".", "|", "&", "^", "/", "<<", ">>", "-", "and", "or", "xor"})
_FORMS: Final = frozenset({"ip", "ip6", "addr", ".", "port", "prefix", "interval"})
"""What may stand between a translation and ``to``: the form of the address behind it."""


def read_rule(text: str) -> Rule:
    """The rule of a text, or the policy of a chain (``policy drop``).

    >>> rule = read_rule('ip saddr != 10.0.0.0/8 tcp dport { 80, 443 } counter dnat to 10.1.0.1:8080 comment "web"')
    >>> [each.name for each in rule.parts], rule.target, rule.comment
    (['ip saddr', 'tcp dport', 'counter', 'dnat', 'comment'], 'dnat', 'web')
    """
    words = _WORD.findall(text)
    if words[:1] == ["policy"]:
        return Rule("", (Action(words[1]),), tool=Tool.NFT, is_policy=True)
    return Rule("", tuple(_Reader(words).parts()), tool=Tool.NFT)


def print_rule(rule: Rule) -> str:
    """The rule as nft prints it."""
    return " ".join([*["policy"] * rule.is_policy, *(word for part in rule.parts for word in words_of(part))])


def words_of(part: Match | Action) -> list[str]:
    """The words of a part as nft prints them."""
    if isinstance(part, Match):
        return [part.name, *((part.operator,) if part.operator else ()), *part.values]
    if part.name == "vmap":
        return [part.words[0], "vmap", *part.words[1:]]
    return [part.name, *part.words]


def led_to(rule: Rule) -> list[str]:
    """The chains to which the rule leads packets, by a jump or by a map that it has itself."""
    chains: list[str] = []
    for action in rule.actions:
        words = action.words[-1].strip("{}").replace(",", " ").split() if action.name == "vmap" else []
        chains += [action.words[0]] if action.name in ("goto", "jump") else []
        chains += [chain for verb, chain in pairwise(words) if verb in ("goto", "jump")]
    return chains


class _Reader:
    """Reads the words of one rule from left to right."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._at = 0

    def parts(self) -> Iterator[Match | Action]:
        while self._at < len(self._words):
            is_target = self._word() == "xt" and self._word(1) == "target"
            yield self._statement() if is_target or self._word() in _STATEMENTS else self._condition()

    def _word(self, ahead: int = 0) -> str:
        return self._words[self._at + ahead] if self._at + ahead < len(self._words) else ""

    def _take(self, count: int = 1) -> list[str]:
        taken = self._words[self._at : self._at + count]
        self._at += count
        return taken

    def _condition(self) -> Match | Action:
        """A comparison; or a statement that begins with what it changes or looks up."""
        known = self._word() in _EXPRESSIONS or self._word().startswith("@")
        name = " ".join(self._joined(self._operand()))
        if self._word() == "set":
            self._take()
            return Action(f"{name} set", tuple(self._looked_up(self._joined(self._operand()))))
        if self._word() == "vmap":
            return Action("vmap", (name, *self._take(2)[1:]))
        operator = self._take()[0] if self._word() in _OPERATORS else ""
        values = self._take() if self._word() == "over" else []
        # Behind a known expression stands a value, even one that is called like a statement (``ct status dnat``).
        if known or self._word() not in _STATEMENTS:
            values += self._joined(self._take())
        return Match(name, tuple(values), operator)

    def _operand(self) -> list[str]:
        """One expression, or one value."""
        word, following = self._word(), self._word(1)
        if word == "ct" and following in ("original", "reply"):
            return self._take(4 if self._word(2) in ("ip", "ip6") else 3)
        if following in ("option", "chunk") and word in _HEADERS:
            alone = self._word(3) in _STATEMENTS or self._word(3) in ("", "exists", "missing")
            return self._take(3 if alone else 4)
        if word == "rt" and following in ("ip", "ip6"):
            return self._take(3)
        if word in _LONG:
            return self._take(self._count_to(_LONG[word]))
        if word in _NUMBERS:
            number = self._take(self._count_to(frozenset({"mod"})) + 1)
            while self._word() in ("offset", "seed"):
                number += self._take(2)
            return number
        if word in _TUNNELS and following in _HEADERS:  # a field of the packet inside
            return self._take(3)
        return self._take(2 if word in _HEADERS else 1)

    def _count_to(self, ends: frozenset[str]) -> int:
        """How many words there are up to one of these, or to the end."""
        rest = self._words[self._at :]
        return next((count for count, word in enumerate(rest, 1) if word in ends), len(rest))

    def _joined(self, first: list[str]) -> list[str]:
        """That operand, and those that operators join to it."""
        words = first
        while self._word() in _JOINS:
            words += self._take()
            words += self._operand() if self._word() in _EXPRESSIONS else self._take()
        return words

    def _looked_up(self, operand: list[str]) -> list[str]:
        return operand + (self._take(2) if self._word() == "map" else [])

    def _statement(self) -> Action:
        name = self._take()[0]
        if name in _TRANSLATING:
            return Action(name, tuple(self._translation()))
        if name in _WITH_ONE:
            return Action(name, tuple(self._take()))
        if name in ("flow", "add", "update", "delete", "xt"):
            return Action(name, tuple(self._take(2)))
        if name == "reject":  # `with icmp type port-unreachable`, `with tcp reset`
            return Action(
                name, tuple(self._take(4 if self._word(2) == "type" else 3) if self._word() == "with" else ())
            )
        words: list[str] = []
        while self._word() and self._word() not in _STATEMENTS and self._word() not in _EXPRESSIONS:
            words += self._take()
            if words[-1] in ("to", "name"):  # `queue to …`, `counter name …`
                words += self._looked_up(self._joined(self._operand()))
            elif words[-1] == "flags":  # `log flags tcp sequence,options`
                words += self._take(2 if self._word() in ("tcp", "ip") else 1)
        return Action(name, tuple(words))

    def _translation(self) -> list[str]:
        words: list[str] = []
        while self._word() in _FORMS and (words or self._word(1) in _FORMS or self._word(1) == "to"):
            words += self._take()
        while self._word() in ("to", "device"):
            words += self._take()
            address, colon, port = self._word().rpartition(":")
            if colon and port in _EXPRESSIONS:  # `redirect to :tcp dport map …`: the port alone is looked up
                self._words[self._at] = port
                first, *others = self._looked_up(self._joined(self._operand()))
                words += [f"{address}:{first}", *others]
            else:
                words += self._looked_up(self._joined(self._operand()))
        while self._word() and (self._word()[0] == ":" or _FLAGS.issuperset(self._word().split(","))):
            words += self._take()
        return words
