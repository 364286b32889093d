"""What a rule does to a packet that matches it, in words that all tools share."""

from collections.abc import Iterator
from enum import Enum, auto
from ipaddress import ip_address
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.rules.ipvs import DESTINATION
from proxylab.rules.rule import Action, Rule, Tool


class Effect(Enum):
    """One thing that a rule may do to a packet."""

    DROP = auto()
    REJECT = auto()
    RESET = auto()
    """Reject with a reset of TCP."""
    TAKE = auto()
    """Hand it to a program, or answer it in a program's stead."""
    LOOK_UP = auto()
    """Do what a map of verdicts says, which may be to drop it."""
    SOURCE = auto()
    """Translate its source, by connection tracking."""
    DESTINATION = auto()
    """Translate its destination, by connection tracking."""
    SET_SOURCE = auto()
    """Write another source into it, without connection tracking."""
    SET_DESTINATION = auto()
    """Write another destination into it, without connection tracking."""
    HOPS = auto()
    """Change its TTL or hop limit."""
    DSCP = auto()
    """Change its mark for queues."""
    MARK = auto()
    NO_TRACKING = auto()
    """Exempt it from connection tracking."""
    FORWARD = auto()
    """Send it out of another device at once."""
    PACKET_TYPE = auto()
    """Change whether it is for this host at all."""
    ACCEPT = auto()
    RETURN = auto()


Effects = frozenset[Effect]

ENDING: Final = frozenset({Effect.DROP, Effect.REJECT, Effect.TAKE, Effect.LOOK_UP, Effect.FORWARD, Effect.PACKET_TYPE})
"""What may keep a packet from where it was going."""
REJECTING: Final = frozenset({Effect.REJECT})
RESETTING: Final = frozenset({Effect.RESET})
REWRITING_SOURCE: Final = frozenset({Effect.SOURCE, Effect.SET_SOURCE})
REWRITING_DESTINATION: Final = frozenset({Effect.DESTINATION, Effect.SET_DESTINATION})
REWRITING: Final = REWRITING_SOURCE | REWRITING_DESTINATION
STATELESS: Final = frozenset({Effect.SET_SOURCE, Effect.SET_DESTINATION})
CHANGING_HOPS: Final = frozenset({Effect.HOPS})
CHANGING_DSCP: Final = frozenset({Effect.DSCP})
MARKING: Final = frozenset({Effect.MARK})
EXEMPTING: Final = frozenset({Effect.NO_TRACKING, Effect.FORWARD})
"""The kernel translates no packet that it does not track, or that a rule sends to another device at once."""

_TARGETS: Final = {
    "ACCEPT": (Effect.ACCEPT,),
    "DNAT": (Effect.DESTINATION,),
    "DNPT": (Effect.SET_DESTINATION,),
    "DROP": (Effect.DROP,),
    "DSCP": (Effect.DSCP,),
    "HL": (Effect.HOPS,),
    "HMARK": (Effect.MARK,),
    "MARK": (Effect.MARK,),
    "MASQUERADE": (Effect.SOURCE,),
    "NFQUEUE": (Effect.TAKE,),
    "NOTRACK": (Effect.NO_TRACKING,),
    "REDIRECT": (Effect.DESTINATION,),
    "REJECT": (Effect.REJECT,),
    "RETURN": (Effect.RETURN,),
    "SNAT": (Effect.SOURCE,),
    "SNPT": (Effect.SET_SOURCE,),
    "SYNPROXY": (Effect.TAKE,),
    "TOS": (Effect.DSCP,),
    "TPROXY": (Effect.TAKE,),
    "TTL": (Effect.HOPS,),
}
"""Targets of iptables-extensions(8). Those of SNPT and DNPT rewrite prefixes without connection tracking."""
_OF_OPTION: Final = {
    ("CONNMARK", "--restore-mark"): Effect.MARK,
    ("CT", "--notrack"): Effect.NO_TRACKING,
    ("SET", "--map-mark"): Effect.MARK,
}
"""Targets that do it only with this option."""
_LEAVING: Final = frozenset({"POSTROUTING", "INPUT"})
_COMING: Final = frozenset({"PREROUTING", "OUTPUT"})

_STATEMENTS: Final = {
    "accept": Effect.ACCEPT,
    "dnat": Effect.DESTINATION,
    "drop": Effect.DROP,
    "fwd": Effect.FORWARD,
    "masquerade": Effect.SOURCE,
    "notrack": Effect.NO_TRACKING,
    "queue": Effect.TAKE,
    "redirect": Effect.DESTINATION,
    "return": Effect.RETURN,
    "snat": Effect.SOURCE,
    "synproxy": Effect.TAKE,
    "tproxy": Effect.TAKE,
}
_SETS: Final = {
    "saddr": Effect.SET_SOURCE,
    "sport": Effect.SET_SOURCE,
    "daddr": Effect.SET_DESTINATION,
    "dport": Effect.SET_DESTINATION,
    "ttl": Effect.HOPS,
    "hoplimit": Effect.HOPS,
    "dscp": Effect.DSCP,
    "mark": Effect.MARK,
    "pkttype": Effect.PACKET_TYPE,
}
"""Statements of nft that set a field."""
_TRANSLATIONS: Final = frozenset({"DNAT", "SNAT", "dnat", "snat"})
_NEW: Final = ("--to-destination", "--to-source", "to")


def effects(rule: Rule) -> Effects:
    """What a rule does to packets that match, or to some of them where it is a destination of a virtual server."""
    if rule.tool is Tool.IPVSADM:
        led = [each for each in rule.actions if each.name == DESTINATION and "-m" in each.words]
        return frozenset({Effect.DESTINATION} if any(each.after("-w") != "0" for each in led) else ())
    return frozenset(each for action in rule.actions for each in _effects(rule, action))


def new_address(rule: Rule) -> IPAddress | None:
    """The one address that a rule gives packets, as source or destination; ``None`` where it names none or several."""
    try:
        return ip_address(new_end(rule)[0])
    except ValueError:
        return None


def new_end(rule: Rule) -> tuple[str, str]:
    """The address and the port that a rule gives packets, as written; each is empty where the rule does not name it."""
    for action in rule.actions:
        if action.name.endswith("addr set") and action.words:
            return action.words[0], ""
        if port := action.after("--to-ports"):
            return "", port
        if rule.tool is Tool.IPVSADM:
            text = action.after("-r")
        else:
            text = next(filter(None, map(action.after, _NEW)), "") if action.name in _TRANSLATIONS else ""
        if text.startswith("["):
            host, _, port = text[1:].partition("]")
            return host, port.removeprefix(":")
        if text:
            host, _, port = text.partition(":") if text.count(":") == 1 else (text, "", "")
            return host, port
    return "", ""


def _effects(rule: Rule, action: Action) -> Iterator[Effect]:
    if not rule.is_nft:
        yield from _of_target(rule.chain, action.name, action.words)
    elif action.name == "xt":  # nft's words for what iptables-nft wrote and nft cannot say itself
        yield from _of_target(rule.chain, action.words[-1].strip('"'), ())
    elif action.name == "reject":
        yield Effect.REJECT
        if action.words[1:] == ("tcp", "reset"):
            yield Effect.RESET
    elif action.name == "vmap":
        verdicts = [each.rpartition(" : ")[2].strip() for each in action.words[-1].strip("{} ").split(",")]
        if action.words[-1].startswith("@") or "drop" in verdicts:
            yield Effect.LOOK_UP
    elif action.name.endswith(" set"):
        field = action.name.split()[-2]
        if field in _SETS:
            yield _SETS[field]
    elif action.name in _STATEMENTS:
        yield _STATEMENTS[action.name]


def _of_target(chain: str, target: str, words: tuple[str, ...]) -> Iterator[Effect]:
    yield from _TARGETS.get(target, ())
    yield from (effect for (name, option), effect in _OF_OPTION.items() if name == target and option in words)
    if target == "REJECT" and "tcp-reset" in words:
        yield Effect.RESET
    # NETMAP translates sources or destinations, by the hook that it stands in.
    if target == "NETMAP" and chain not in _COMING:
        yield Effect.SOURCE
    if target == "NETMAP" and chain not in _LEAVING:
        yield Effect.DESTINATION
