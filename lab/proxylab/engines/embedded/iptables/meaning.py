"""The meaning of iptables rules, independent of the tool that wrote them.

Reads iptables-save's output, or a text for iptables-restore, into rules that are equal when they mean the same, and
lists the differences of two sets (``differences``). It follows iptables(8) and iptables-extensions(8).

Equal in the spellings of iptables-save and kube-proxy:

* options imply ``-m NAME``, and have no order;
* ``-d 10.0.0.1`` is ``-d 10.0.0.1/32``;
* ``--or-mark M`` is ``--set-xmark M/M``, ``--xor-mark M`` is ``--set-xmark M/0x0``, ``--and-mark M`` clears the rest;
* a probability is a multiple of 2^-31 (xt_statistic), whatever decimals it is written with;
* by default xt_recent looks at the whole source address, and REJECT answers with port unreachable.
"""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network

from proxylab.rules.iptables import options_of, read_rule, read_tables
from proxylab.rules.rule import Match, Rule

RuleMeaning = frozenset[tuple[str, ...]]
"""Options with their values; a negated one begins with ``!``."""

Chains = dict[tuple[str, str], list[RuleMeaning]]
"""Rules by table and chain. An empty chain has an entry without rules."""

_ALL_SERVICES = "kubernetes"
"""The first word, in place of a Service's name, in comments of rules that are for all Services."""

_LAST_RULES = "the end"
"""The group of the rules at the end of a shared chain; no Service can have this name. Their order does not count."""

_SHARED = {
    "KUBE-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-PROXY-FIREWALL",
    # Of mode userspace.
    "KUBE-NODEPORT-CONTAINER",
    "KUBE-NODEPORT-HOST",
    "KUBE-NODEPORT-NON-LOCAL",
    "KUBE-PORTALS-CONTAINER",
    "KUBE-PORTALS-HOST",
}
"""Chains in which rules of different Services have no order."""

_UNORDERED = {"KUBE-IPVS-OUT-FILTER"}
"""Chains whose rules have no order: kube-proxy writes them as Go ranges over a map."""

_LONG = {
    "-s": "--source",
    "-d": "--destination",
    "-p": "--protocol",
    "-i": "--in-interface",
    "-o": "--out-interface",
}
_MARKS = 0xFFFFFFFF
_DEFAULTS: frozenset[tuple[str, ...]] = frozenset(
    {
        ("--rsource",),
        ("--mask", "255.255.255.255"),
        ("--mask", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("--reject-with", "icmp-port-unreachable"),
        ("--reject-with", "icmp6-port-unreachable"),
    }
)


def read_rules(text: str) -> Chains:
    r"""The rules in a text of ``iptables-save``, or those that ``iptables-restore`` makes from a text.

    >>> saved = read_rules("*nat\n:C - [0:0]\n[1:60] -A C -d 10.0.0.1/32 -j MARK --set-xmark 0x4000/0x4000\nCOMMIT")
    >>> saved == read_rules("*nat\n:C - [0:0]\n-A C -j MARK --or-mark 0x004000 -d 10.0.0.1\nCOMMIT")
    True
    """
    chains: Chains = {}
    for table in read_tables(text):
        chains |= {(table.name, chain): [] for chain in table.chains}
        for saved in table.rules:
            rules = chains.setdefault((table.name, saved.chain), [])
            rule = read_rule(saved.text)
            if rule is None:
                raise ValueError(saved.text)
            rules.insert(0 if rule.inserted else len(rules), rule_meaning(rule))
        for chain in table.deleted:
            del chains[table.name, chain]
    return chains


def differences(ours: Mapping[tuple[str, str], Sequence[RuleMeaning]], theirs: Chains) -> list[str]:
    """A line for each rule or chain that only one of the two has, or has at another position.

    An empty built-in chain equals an absent one.
    """
    lines: list[str] = []
    for table, chain in sorted({*ours, *theirs}):
        mine, other = ours.get((table, chain)), theirs.get((table, chain))
        if not mine and not other and not chain.startswith("KUBE-"):
            continue
        if mine is None or other is None:
            lines.append(f"{'-' if mine is not None else '+'} {table} {chain}: the whole chain")
            continue
        for before, after in _paired(chain, mine, other):
            lines += [f"- {table} {chain}: {_rule_text(rule)}" for rule in before]
            lines += [f"+ {table} {chain}: {_rule_text(rule)}" for rule in after]
    return lines


def _paired(
    chain: str, ours: Sequence[RuleMeaning], theirs: Sequence[RuleMeaning]
) -> Iterator[tuple[list[RuleMeaning], list[RuleMeaning]]]:
    """The differences, group by group; within a group the order counts."""
    mine, other = _groups(chain, ours), _groups(chain, theirs)
    for group in sorted({*mine, *other}):
        left, right = mine.get(group, []), other.get(group, [])
        if left != right:
            gone = [rule for rule in left if rule not in right]
            come = [rule for rule in right if rule not in left]
            yield (gone, come) if gone or come else (left, right)


def _groups(chain: str, rules: Sequence[RuleMeaning]) -> dict[str, list[RuleMeaning]]:
    groups: dict[str, list[RuleMeaning]] = defaultdict(list)
    for number, rule in enumerate(rules):
        group = _service_of(rule) if chain in _SHARED else ""
        if group == _ALL_SERVICES:
            # KUBE-SERVICES ends in the jumps to node ports, one for each address; no rule may follow them.
            is_last = all(_service_of(later) == _ALL_SERVICES for later in rules[number:])
            group = _LAST_RULES if is_last else f"{len(rules) - number} from the end"
        groups[group].append(rule)
    for group in groups if chain in _UNORDERED else (_LAST_RULES,):
        groups[group].sort(key=_rule_text)
    return groups


def _service_of(rule: RuleMeaning) -> str:
    """The Service at the beginning of a rule's comment."""
    return next((option[1] for option in rule if option[0] == "--comment"), "").split(" ")[0]


def rule_meaning(rule: Rule) -> RuleMeaning:
    """What a rule means, without its chain."""
    options = {_normal(match) for match in rule.matches if match.name != "-m"}
    for action in rule.actions:
        options.add(("--goto" if action.returns_past else "--jump", action.name))
        options |= {_normal(option) for option in options_of(action)}
    return frozenset(option for option in options if option not in _DEFAULTS)


def _normal(option: Match) -> tuple[str, ...]:
    name, values = _LONG.get(option.name, option.name), list(option.values)
    match name, values:
        case (("--source" | "--destination"), [address]):
            values = [str(ip_network(address, strict=False))]
        case "--ctstate", [states]:
            values = [",".join(sorted(states.split(",")))]
        case "--mark", [mark]:
            values = [_masked(mark)]
        case "--probability", [number]:
            values = [str(round(float(number) * (1 << 31)))]
        case (("--or-mark" | "--xor-mark" | "--and-mark" | "--set-mark" | "--set-xmark"), [mark]):
            name, values = "--set-xmark", [_xmark(name, mark)]
    return (*filter(None, (option.operator,)), name, *values)


def _masked(mark: str) -> str:
    value, _, mask = mark.partition("/")
    return f"{int(value, 0):#x}/{int(mask, 0) if mask else _MARKS:#x}"


def _xmark(name: str, mark: str) -> str:
    """The bits to flip and the bits to clear, as ``--set-xmark`` has them."""
    text, _, mask = mark.partition("/")
    value = int(text, 0)
    match name:
        case "--or-mark":
            turned, cleared = value, value
        case "--xor-mark":
            turned, cleared = value, 0
        case "--and-mark":
            turned, cleared = 0, ~value & _MARKS
        case "--set-mark":
            cleared = int(mask, 0) if mask else _MARKS
            turned, cleared = value, cleared | value
        case _:
            turned, cleared = value, int(mask, 0) if mask else _MARKS
    return f"{turned:#x}/{cleared:#x}"


def _rule_text(rule: RuleMeaning) -> str:
    return " ".join(shlex.join(option) for option in sorted(rule, key=lambda option: (option[0] == "--jump", option)))
