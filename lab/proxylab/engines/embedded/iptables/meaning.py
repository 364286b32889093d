"""What a set of iptables rules means, whoever wrote it down.

Owns: reading iptables-save's output, or a text for iptables-restore, into rules that are equal when they mean the same,
and telling two sets apart (``differences``).
Must not: know Services. It goes by what iptables(8) and iptables-extensions(8) say of options.

What is the same, in the spelling of iptables-save and in that of kube-proxy:

* ``-m NAME`` says nothing that the options do not say, and options have no order;
* ``-d 10.0.0.1`` is ``-d 10.0.0.1/32``;
* ``--or-mark M`` is ``--set-xmark M/M``, ``--xor-mark M`` is ``--set-xmark M/0x0``, ``--and-mark M`` clears the rest;
* a probability is a multiple of 2^-31 (xt_statistic), whatever decimals it is written with;
* xt_recent goes by the source and its whole address, REJECT answers with port unreachable, unless told otherwise.
"""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network

__all__ = ["Chains", "RuleMeaning", "differences", "read_rules"]

RuleMeaning = frozenset[tuple[str, ...]]
"""Options, each with its values; a negated one begins with ``!``."""

Chains = dict[tuple[str, str], list[RuleMeaning]]
"""Rules by table and chain. A chain that exists and is empty is there with no rules."""

_NOBODY = "kubernetes"
"""With this, and no Service's name, begin the comments of rules that are for all Services."""

_SHARED = {"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"}
"""Chains in which the rules of different Services have no order among each other."""

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
_UNSAID: frozenset[tuple[str, ...]] = frozenset(
    {
        ("--rsource",),
        ("--mask", "255.255.255.255"),
        ("--mask", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("--reject-with", "icmp-port-unreachable"),
        ("--reject-with", "icmp6-port-unreachable"),
    }
)


def read_rules(text: str) -> Chains:
    r"""The rules in a text of ``iptables-save``, or those that a text for ``iptables-restore`` leads to.

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
            rules.insert(len(rules) if words[0] == "-A" else 0, _meaning(words[2:]))
    return chains


def differences(ours: Mapping[tuple[str, str], Sequence[RuleMeaning]], theirs: Chains) -> list[str]:
    """A line for each rule or chain that one of the two has and the other lacks, or has in another place.

    Built-in chains without rules are as good as absent.
    """
    told: list[str] = []
    for table, chain in sorted({*ours, *theirs}):
        mine, other = ours.get((table, chain)), theirs.get((table, chain))
        if not mine and not other and not chain.startswith("KUBE-"):
            continue
        if mine is None or other is None:
            told.append(f"{'-' if mine is not None else '+'} {table} {chain}: the whole chain")
            continue
        for before, after in _paired(chain, mine, other):
            told += [f"- {table} {chain}: {_words(rule)}" for rule in before]
            told += [f"+ {table} {chain}: {_words(rule)}" for rule in after]
    return told


def _paired(
    chain: str, ours: Sequence[RuleMeaning], theirs: Sequence[RuleMeaning]
) -> Iterator[tuple[list[RuleMeaning], list[RuleMeaning]]]:
    """What differs, group by group; within a group the order counts."""
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
        if group == _NOBODY:
            # The last rules of KUBE-SERVICES lead on to node ports, one for each address; nothing may come after them.
            is_last = all(_service_of(later) == _NOBODY for later in rules[number:])
            group = "the end" if is_last else f"{len(rules) - number} from the end"
        groups[group].append(rule)
    groups["the end"].sort(key=_words)
    return groups


def _service_of(rule: RuleMeaning) -> str:
    """The Service that a rule's comment begins with."""
    return next((option[1] for option in rule if option[0] == "--comment"), "").split(" ")[0]


def _meaning(words: Sequence[str]) -> RuleMeaning:
    options = {_normal(option) for option in _options(words)}
    return frozenset(option for option in options if option[0] != "-m" and option not in _UNSAID)


def _options(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
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
    """An option that is being read."""

    words: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether it has its name: a negation alone is no option."""
        return self.words not in ([], ["!"])

    @property
    def expects_value(self) -> bool:
        """A comment may begin with a dash, and is never an option."""
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
    """The bits that are cleared and those that are turned over, as ``--set-xmark`` has them."""
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


def _words(rule: RuleMeaning) -> str:
    return " ".join(shlex.join(option) for option in sorted(rule, key=lambda option: (option[0] == "--jump", option)))
