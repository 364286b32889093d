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
from dataclasses import dataclass, field
from ipaddress import ip_network

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
    "--src": "--source",
    "-d": "--destination",
    "--dst": "--destination",
    "-p": "--protocol",
    "--proto": "--protocol",
    "-i": "--in-interface",
    "-o": "--out-interface",
    "-j": "--jump",
    "-g": "--goto",
    "--destination-port": "--dport",
    "--source-port": "--sport",
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
    table = ""
    for line in text.splitlines():
        verb, _, rest = line.partition(" ")
        if line.startswith("*"):
            table = line[1:].strip()
        elif line.startswith(":"):
            chains[table, verb[1:]] = []
        elif verb == "-X":
            del chains[table, rest.strip()]
        elif line.startswith(("-A", "-I", "[")):
            words = shlex.split(line[line.index("-") :])
            rules = chains.setdefault((table, words[1]), [])
            rules.insert(len(rules) if words[0] == "-A" else 0, rule_meaning(words[2:]))
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


def rule_meaning(words: Sequence[str]) -> RuleMeaning:
    """The meaning of a rule, from the words behind its chain."""
    options = {_normal(option) for option in split_options(words)}
    return frozenset(option for option in options if option[0] != "-m" and option not in _DEFAULTS)


def split_options(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each option with its values; a negation stands first."""
    option = _Option()
    for word in words:
        begins = word == "!" or (word.startswith("-") and len(word) > 1 and not option.expects_value)
        if begins and option.is_complete:
            yield tuple(option.words)
            option = _Option()
        option.words.append(word)
    if option.words:
        yield tuple(option.words)


@dataclass(slots=True)
class _Option:
    """An option under construction."""

    words: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether it has its name; a negation alone is not an option."""
        return self.words not in ([], ["!"])

    @property
    def expects_value(self) -> bool:
        """Whether the next word is a value even if it begins with a dash, as a comment may."""
        return self.words == ["--comment"]


def _normal(option: tuple[str, ...]) -> tuple[str, ...]:
    negation, (name, *values) = (("!",), option[1:]) if option[0] == "!" else ((), option)
    name = _LONG.get(name, name)
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
    return (*negation, name, *values)


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
