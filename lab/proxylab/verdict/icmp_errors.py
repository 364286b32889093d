"""ICMP errors by the names of the codes with which rules reject packets, as nft and iptables write them.

Both families have errors of one meaning under numbers of their own (RFC 792, RFC 4443); nft's ``reject with icmpx`` has
one name for both.
"""

from collections.abc import Mapping
from typing import Final

from proxylab.evidence.evidence import Observation
from proxylab.rules.rule import Rule
from proxylab.scenario.words import ErrorKind, IcmpError

_REJECTING: Final[Mapping[int, Mapping[tuple[int, int], IcmpError]]] = {
    4: {
        (3, 0): IcmpError.NO_ROUTE,
        (3, 1): IcmpError.HOST_UNREACHABLE,
        (3, 2): IcmpError.PROTOCOL_UNREACHABLE,
        (3, 3): IcmpError.PORT_UNREACHABLE,
        (3, 9): IcmpError.NET_PROHIBITED,
        (3, 10): IcmpError.HOST_PROHIBITED,
        (3, 13): IcmpError.ADMIN_PROHIBITED,
    },
    6: {
        (1, 0): IcmpError.NO_ROUTE,
        (1, 1): IcmpError.ADMIN_PROHIBITED,
        (1, 3): IcmpError.HOST_UNREACHABLE,
        (1, 4): IcmpError.PORT_UNREACHABLE,
        (1, 5): IcmpError.POLICY_FAIL,
        (1, 6): IcmpError.REJECT_ROUTE,
    },
}

_NAMES: Final[Mapping[int, Mapping[tuple[int, int], str]]] = {
    4: {
        (3, 0): "network unreachable",
        (3, 1): "host unreachable",
        (3, 2): "protocol unreachable",
        (3, 3): "port unreachable",
        (3, 4): "packet too big",
        (3, 9): "network prohibited",
        (3, 10): "host prohibited",
        (3, 13): "administratively prohibited",
        (11, 0): "time to live exceeded",
    },
    6: {
        (1, 0): "no route",
        (1, 1): "administratively prohibited",
        (1, 3): "address unreachable",
        (1, 4): "port unreachable",
        (1, 5): "source address failed policy",
        (1, 6): "reject route",
        (2, 0): "packet too big",
        (3, 0): "hop limit exceeded",
    },
}
"""By IP version, type and code (RFC 792, RFC 1122, RFC 4443)."""

_KINDS_4: Final = {3: ErrorKind.UNREACHABLE, 11: ErrorKind.TIME_EXCEEDED}
_KINDS_6: Final = {1: ErrorKind.UNREACHABLE, 2: ErrorKind.TOO_BIG, 3: ErrorKind.TIME_EXCEEDED}

_IN_RULES: Final[Mapping[str, IcmpError]] = {
    **{str(each): each for each in IcmpError},
    "net-unreachable": IcmpError.NO_ROUTE,
    "addr-unreachable": IcmpError.HOST_UNREACHABLE,
    "proto-unreachable": IcmpError.PROTOCOL_UNREACHABLE,
    "prot-unreachable": IcmpError.PROTOCOL_UNREACHABLE,
    "adm-prohibited": IcmpError.ADMIN_PROHIBITED,
    "": IcmpError.PORT_UNREACHABLE,
}
"""The names of ``--reject-with`` without their prefix (iptables-extensions(8)), and those of nft, which have none. A
rule without a name rejects with the last."""


def rejecting_error(error: Observation) -> IcmpError | None:
    """The error as a rule names it; ``None`` for one that no rule sends, such as an exceeded hop limit."""
    return _REJECTING[error.source.version].get(error.icmp or (0, 0))


def kind_of(error: Observation) -> ErrorKind | None:
    """The kind of an error; ``None`` for advice of another kind, such as a redirect."""
    number, code = error.icmp or (0, 0)
    if error.source.version == 6:
        return _KINDS_6.get(number)
    return ErrorKind.TOO_BIG if (number, code) == (3, 4) else _KINDS_4.get(number)


def errors_of(rule: Rule) -> frozenset[IcmpError]:
    """The error that a rule which rejects sends; none for a reset, every one where its words do not say which."""
    action = rule.action
    with_reset = action is not None and ("tcp-reset" in action.words or action.words[1:] == ("tcp", "reset"))
    if with_reset:
        return frozenset()
    if rule.is_nft:
        name = "?" if action is None or action.name == "xt" else (action.words or ("",))[-1]
    else:
        name = rule.value("--reject-with").removeprefix("icmp6-").removeprefix("icmp-")
    return frozenset({_IN_RULES[name]} if name in _IN_RULES else IcmpError)


def icmp_words(error: Observation) -> str:
    """An ICMP error by its name, or by type and code: ``ICMP host unreachable (3/1)``."""
    kind = error.icmp or (0, 0)
    name = _NAMES[error.source.version].get(kind, "")
    return f"ICMP {name or 'type'} ({kind[0]}/{kind[1]})"
