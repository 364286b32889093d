"""Sets of ipset: read from ``ipset save`` or a text for ``ipset restore``, and printed again.

A rule of iptables names a set, and a direction for each of its fields (``--match-set NAME dst,dst,src``). So whether
packets match depends on the members, which ``packets.matches`` takes.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.rules.iptables import split

_COMMENT: Final = "comment"
"""In a member, and not in a set, a text in quotes stands behind it."""


class SetMember(Struct, frozen=True):
    """One member of a set.

    Attributes:
        of: the name of the set.
        fields: as the set's type has them, such as an address, ``tcp:80`` and a network.
        options: the words behind them: ``timeout 30``, ``nomatch``, ``comment`` and its text.
    """

    of: str
    fields: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def is_exception(self) -> bool:
        """Whether it takes its addresses out of a wider network of the set."""
        return "nomatch" in self.options

    @property
    def ends(self) -> bool:
        """Whether the kernel removes it by itself."""
        return any(option == "timeout" and seconds != "0" for option, seconds in pairwise(self.options))


class NamedSet(Struct, frozen=True):
    """A set. ``kind`` is its type in ipset's words, such as ``hash:ip,port``."""

    name: str
    kind: str
    options: tuple[str, ...] = ()
    members: tuple[SetMember, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """What its members have: ``ip``, ``port``, ``net``."""
        return tuple(self.kind.partition(":")[2].split(","))


def read_sets(text: str) -> dict[str, NamedSet]:
    """The sets that a text makes, by name, each with its members."""
    sets: dict[str, NamedSet] = {}
    members: dict[str, list[SetMember]] = {}
    for line in text.splitlines():
        if (made := read_set(line)) is not None:
            sets[made.name] = made
        elif (member := read_member(line)) is not None:
            members.setdefault(member.of, []).append(member)
    return {name: replace(made, members=tuple(members.get(name, ()))) for name, made in sets.items()}


def read_set(line: str) -> NamedSet | None:
    """The set that a line makes, without members; ``None`` for any other line."""
    command, *words = line.split() or [""]
    if command != "create" or len(words) < 2:
        return None
    return NamedSet(words[0], words[1], tuple(words[2:]))


def read_member(line: str) -> SetMember | None:
    """The member that a line adds; ``None`` for any other line.

    >>> read_member('add KUBE-CLUSTER-IP 10.96.0.10,tcp:80 timeout 5 comment "of web"')
    SetMember(of='KUBE-CLUSTER-IP', fields=('10.96.0.10', 'tcp:80'), options=('timeout', '5', 'comment', 'of web'))
    """
    if not line.startswith("add "):
        return None
    try:
        _, of, fields, *options = (word for word, _ in split(line))
    except ValueError:
        return None  # a quote without end, or no member
    return SetMember(of, tuple(fields.split(",")), tuple(options))


def print_sets(sets: Iterable[NamedSet]) -> list[str]:
    """The lines of sets, each with its members, as ``ipset save`` prints them."""
    lines: list[str] = []
    for each in sets:
        lines += [" ".join(("create", each.name, each.kind, *each.options)), *map(print_member, each.members)]
    return lines


def print_member(member: SetMember) -> str:
    """The member as ``ipset save`` prints it."""
    words = ["add", member.of, ",".join(member.fields)]
    for word in member.options:
        words.append(f'"{word}"' if words[-1] == _COMMENT else word)
    return " ".join(words)
