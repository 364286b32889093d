"""The table as data: the commands of one service port, and the whole ``Ruleset``.

Everything about a Service is text from the beginning: a large cluster has tens of thousands of elements and rules, and
no code reads their parts.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.cluster.objects import ObjectKey

Element = tuple[str, str]
"""The set or map of an element, and its key."""


class PortRules(NamedTuple):
    """The rules and elements of one service port.

    Attributes:
        elements: each with the rest of its text: comment and verdict, or empty in a set.
        chains: the names of its chains.
        sets: the sets that remember its clients, each with its timeout in seconds.
        rules: the rules in those chains, each as ``CHAIN RULE`` in a line of its own.
    """

    service: ObjectKey
    elements: Mapping[Element, str]
    chains: tuple[str, ...]
    sets: tuple[tuple[str, int], ...]
    rules: tuple[str, ...]


class Ruleset(Struct, frozen=True):
    """The table of one proxy in one family.

    Attributes:
        fixed: the commands, a line each, for all that depends on no Service.
        ports: in the order of their Services.
        elements: those of all service ports. Where two have the same key, the last one counts.
    """

    family: Family
    fixed: tuple[str, ...]
    ports: tuple[PortRules, ...]
    elements: Mapping[Element, str]

    @classmethod
    def of(cls, family: Family, fixed: tuple[str, ...], ports: Sequence[PortRules]) -> "Ruleset":
        """The table with these service ports."""
        elements: dict[Element, str] = {}
        for port in ports:
            elements.update(port.elements)
        return cls(family, fixed, tuple(ports), elements)
