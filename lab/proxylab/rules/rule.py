"""One rule: its conditions and actions in the order in which the kernel runs them, in the words of its own tool.

A reader keeps what it does not know as a condition with that name. So printing loses nothing, and a rule with an
unknown condition does not count as one that always matches.
"""

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace


class Tool(Enum):
    """Whose words a rule has."""

    IPTABLES = "iptables"
    NFT = "nft"
    IPVSADM = "ipvsadm"


class Match(Struct, frozen=True):
    """One condition.

    Attributes:
        name: the option of iptables (``-s``, ``--dport``, ``-m``) or the expression of nft (``ip saddr``).
        values: the words behind it; a set in braces is one word, as is a text in quotes.
        operator: ``!`` of iptables; ``!=``, ``<``, ``>=`` of nft; empty where the values are simply those looked for.
    """

    name: str
    values: tuple[str, ...] = ()
    operator: str = ""

    @property
    def negated(self) -> bool:
        return self.operator in ("!", "!=")

    @property
    def value(self) -> str:
        """The first value; empty without one."""
        return self.values[0] if self.values else ""

    @property
    def alternatives(self) -> tuple[str, ...]:
        """The values looked for, one of which a packet must have; those of a set in braces or a list without quotes."""
        return tuple(each.strip(' "') for each in " ".join(self.values).strip("{} ").split(","))


class Action(Struct, frozen=True):
    """What a rule does to a packet: the target of iptables, one statement of nft, or the command of ipvsadm.

    Attributes:
        name: the target (``DNAT``, a chain), the statement (``dnat``, ``jump``, ``ip daddr set``) or the command.
        words: its options with their values, or the words behind the statement.
        returns_past: whether iptables has ``-g``, so that the chain returns past this one.
    """

    name: str
    words: tuple[str, ...] = ()
    returns_past: bool = False

    def after(self, word: str) -> str:
        """The word behind that one; empty where it is not there."""
        at = self.words.index(word) + 1 if word in self.words else len(self.words)
        return self.words[at] if at < len(self.words) else ""

    def having(self, word: str, value: str = "") -> "Action":
        """The same with another word behind that one, which it has; without both where there is no value."""
        at = self.words.index(word)
        return replace(self, words=(*self.words[:at], *((word, value) if value else ()), *self.words[at + 2 :]))


class Rule(Struct, frozen=True):
    """One rule, or the policy of a chain, which acts on every packet that comes to its end.

    Attributes:
        chain: its chain; empty in nftables, whose rules do not say it, and in IPVS, which has none.
        parts: the conditions and actions, in order. iptables has one action at most, the last part.
        is_policy: whether it is the policy of its chain.
        inserted: whether it goes to the top of its chain (``-I``).
    """

    chain: str
    parts: tuple[Match | Action, ...]
    tool: Tool = Tool.IPTABLES
    is_policy: bool = False
    inserted: bool = False

    @property
    def is_nft(self) -> bool:
        return self.tool is Tool.NFT

    @property
    def matches(self) -> Iterator[Match]:
        return (each for each in self.parts if isinstance(each, Match))

    @property
    def actions(self) -> Iterator[Action]:
        return (each for each in self.parts if isinstance(each, Action))

    @property
    def action(self) -> Action | None:
        """The last action that is no comment: what becomes of a packet. ``None`` for a rule that only counts."""
        return next(
            (each for each in reversed(self.parts) if isinstance(each, Action) and each.name != "comment"), None
        )

    @property
    def target(self) -> str:
        """The name of that action; empty without one."""
        return self.action.name if self.action is not None else ""

    @property
    def comment(self) -> str:
        for part in self.parts:
            if isinstance(part, Match) and part.name == "--comment":
                return part.value
            if isinstance(part, Action) and part.name == "comment":
                return part.words[0].strip('"')
        return ""

    @property
    def looked_up(self) -> str:
        """The name of the map of verdicts that decides; empty without one."""
        found = next((each.words[-1] for each in self.actions if each.name == "vmap"), "")
        return found[1:] if found.startswith("@") else ""

    @property
    def counts_what_it_does(self) -> bool:
        """Whether its counter counts only what its last action met: nft may have a condition behind the counter."""
        counted = next((at for at, each in enumerate(self.parts) if each.name == "counter"), len(self.parts))
        return not any(isinstance(each, Match) for each in self.parts[counted:])

    def match(self, name: str) -> Match | None:
        """The first condition of that name."""
        return next((each for each in self.matches if each.name == name), None)

    def value(self, name: str) -> str:
        """The first value of that condition, or of that option of an action; empty without one."""
        if (match := self.match(name)) is not None:
            return match.value
        return next((found for each in self.actions if (found := each.after(name))), "")
