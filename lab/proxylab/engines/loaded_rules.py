"""What a proxy has in the kernel of one node and family, piece by piece, each with its kind: of all modes.

Rules that differ in names, addresses, ports and numbers only are of one kind. Each mode reads its own dumps
(``ProxyMode.loaded``).
"""

from msgspec import Struct


class LoadedRule(Struct, frozen=True):
    """A rule of a chain, or an element of a named set or map.

    Attributes:
        table: as meters name it.
        chain: the chain; the set or map of an element.
        text: as the tool of the mode prints it.
        where: the chain or set without the names of a Service and its endpoints.
        kind: the rule without names, addresses, ports and numbers, behind it.
        key: the parts of an element's key; empty for a rule.
    """

    table: str
    chain: str
    text: str
    where: str
    kind: str
    key: tuple[str, ...] = ()
