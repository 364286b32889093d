"""Commands in a script for ``nft -f`` that stand on one line: ``add rule ip kube-proxy services drop``."""

from typing import Final

from msgspec import Struct

_WORDS: Final = 5


class NftCommand(Struct, frozen=True):
    """One command about something in a table.

    Attributes:
        verb: ``add``, ``delete``, ``flush``.
        kind: of what it is about: ``rule``, ``element``, ``set``.
        table: its family and name: ``ip kube-proxy``.
        name: of the chain, set or map.
        text: what stands behind: a rule, elements in braces, or the properties of a set.
    """

    verb: str
    kind: str
    table: str
    name: str
    text: str = ""


def read_command(line: str) -> NftCommand | None:
    """The command of a line; ``None`` where it has fewer words."""
    words = line.split(" ", _WORDS)
    if len(words) < _WORDS:
        return None
    verb, kind, family, table, name, *text = words
    return NftCommand(verb, kind, f"{family} {table}", name, *text)


def print_command(command: NftCommand) -> str:
    """The line of a command."""
    return " ".join(filter(None, (command.verb, command.kind, command.table, command.name, command.text)))
