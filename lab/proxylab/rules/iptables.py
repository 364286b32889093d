"""Rules in the words of iptables: lines of iptables-save and of texts for iptables-restore.

``print_rule`` spells a rule as iptables-save does, so that printing what it saved gives the same line. Options have the
short names that it prints (``-s`` for ``--source``), and the target comes last.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from proxylab.rules.rule import Action, Match, Rule

_SHORT: Final = {
    "--source": "-s",
    "--src": "-s",
    "--destination": "-d",
    "--dst": "-d",
    "--protocol": "-p",
    "--proto": "-p",
    "--in-interface": "-i",
    "--out-interface": "-o",
    "--fragment": "-f",
    "--match": "-m",
    "--jump": "-j",
    "--goto": "-g",
    "--destination-port": "--dport",
    "--source-port": "--sport",
    "--destination-ports": "--dports",
    "--source-ports": "--sports",
}
_OF_RULE: Final = frozenset({"-s", "-d", "-p", "-i", "-o", "-f", "-m"})
"""Options of every rule: they are conditions wherever they stand, also behind a target."""

_TEXTS: Final = frozenset({"--comment", "--helper", "--log-prefix", "--nflog-prefix", "--nfacct-name"})
"""Options with a free text as value, which may begin with a dash. iptables-save quotes it where it must."""
_QUOTED: Final = frozenset({"--string", "--hex-string", "--u32", "--bytecode"})
"""Likewise, and iptables-save always quotes it."""
_SPACED: Final = "--nfacct-name"
"""iptables-save prints two blanks behind it (``nfacct_save`` and ``xtables_save_string`` both print one)."""

_BARE: Final = re.compile(r"[\w-]+", re.ASCII)
_SPECIAL: Final = re.compile(r"([\"\\'])")
_WORD: Final = re.compile(r'"((?:\\.|[^"\\])*)"|([^\s"]+)')
_ESCAPED: Final = re.compile(r"\\(.)")


class SavedChain(NamedTuple):
    """The head of a chain. ``policy`` is ``-`` for a chain of a user; ``packets`` are what it counted, if known."""

    name: str
    policy: str
    packets: int | None

    @property
    def is_built_in(self) -> bool:
        return self.policy != "-"


class SavedRule(NamedTuple):
    """One line with a rule. ``packets`` is ``None`` where the line has no counter."""

    chain: str
    text: str
    packets: int | None


class SavedTable(Struct, frozen=True):
    """One table as iptables-save prints it, or as iptables-restore takes it.

    A large cluster has a hundred thousand lines, and most readers want few of them: each property reads the text again.

    Attributes:
        body: the lines behind the table's name.
        printed_by: the command that the comment above it names, such as ``ip6tables-save v1.8.9``.
    """

    name: str
    body: str
    printed_by: str = ""

    @property
    def chains(self) -> dict[str, SavedChain]:
        """The chains that have a head, by name."""
        heads, _, _ = self.body.partition("\n[")
        heads, _, _ = heads.partition("\n-")  # all heads stand before the rules
        return {
            name: SavedChain(name, policy, int(packets) if packets else None)
            for name, policy, packets in _CHAIN.findall(heads)
        }

    @property
    def deleted(self) -> list[str]:
        """The chains that the text deletes (``-X``)."""
        return _DELETED.findall(self.body)

    @property
    def rules(self) -> list[SavedRule]:
        """All rules, in order."""
        return [_saved_rule(line) for line in _RULE.finditer(self.body)]

    @property
    def texts(self) -> dict[str, list[str]]:
        """The texts of all rules, in order, by chain."""
        texts: dict[str, list[str]] = {}
        for _, text, chain in _RULE.findall(self.body):
            texts.setdefault(chain, []).append(text.rstrip())
        return texts

    def rules_in(self, chains: Iterable[str]) -> list[SavedRule]:
        """The rules of some chains, in order."""
        found: list[tuple[int, SavedRule]] = []
        for chain in chains:
            at = self.body.find(f" {chain}")
            while at >= 0:
                if self.body[at - 2 : at] in ("-A", "-I"):
                    begin, end = self.body.rfind("\n", 0, at) + 1, self.body.find("\n", at)
                    line = _RULE.fullmatch(self.body, begin, end if end >= 0 else len(self.body))
                    if line is not None and line.span(3) == (at + 1, at + 1 + len(chain)):
                        found.append((at, _saved_rule(line)))
                at = self.body.find(f" {chain}", at + 1)
        return [rule for _, rule in sorted(found)]


_CHAIN: Final = re.compile(r"^:(\S+) (\S+)(?: \[(\d+):\d+\])?", re.MULTILINE)
_DELETED: Final = re.compile(r"^-X (\S+)", re.MULTILINE)
_RULE: Final = re.compile(r"^(?:\[(\d+):\d+\] )?(-[AI] (\S+)(?: .*)?)$", re.MULTILINE)


def _saved_rule(line: re.Match[str]) -> SavedRule:
    packets, text, chain = line.groups()
    return SavedRule(chain, text.rstrip(), int(packets) if packets else None)


def read_tables(text: str) -> list[SavedTable]:
    """The tables of a text, in order. A text of both families has each table twice."""
    tables: list[SavedTable] = []
    printed_by, end = "", 0
    begin = 0 if text.startswith("*") else text.find("\n*") + 1
    while text.startswith("*", begin):
        heads = (line.removeprefix("# ").removeprefix("Generated by ") for line in text[end:begin].splitlines())
        printed_by = next((line for line in heads if line.startswith(("iptables", "ip6tables"))), printed_by)
        following = text.find("\n*", begin) + 1 or len(text)
        end = text.find("\nCOMMIT", begin, following) + 1 or following
        head = text.find("\n", begin) + 1 or len(text)
        tables.append(SavedTable(text[begin + 1 : head].strip(), text[head:end], printed_by))
        begin = following
    return tables


def read_rule(text: str) -> Rule | None:
    """The rule of a line (``-A``, ``-I``), or the policy (``-P``); ``None`` for any other text.

    >>> rule = read_rule("-A KUBE-SERVICES -d 10.0.0.1/32 -p tcp -m tcp ! --dport 80 -j DROP")
    >>> rule.target, [(each.name, each.value) for each in rule.matches if each.negated]
    ('DROP', [('--dport', '80')])
    """
    try:
        words = split(text)
    except ValueError:
        return None
    if len(words) < 2 or words[0][0] not in ("-A", "-I", "-P") or words[1][0].startswith("-"):
        return None  # no chain has such a name; ipvsadm writes `-A -t 10.96.0.10:80`
    verb, chain = words[0][0], words[1][0]
    if verb == "-P":
        return Rule(chain, (Action(words[2][0]),), is_policy=True) if len(words) > 2 else None
    return Rule(chain, _parts(words[2:]), inserted=verb == "-I")


def options_of(action: Action) -> list[Match]:
    """The options of a target: ``--to-destination`` with its values, and the like."""
    return list(_options([(word, action.words[at - 1] in _TEXTS) for at, word in enumerate(action.words)]))


def _parts(words: list[tuple[str, bool]]) -> tuple[Match | Action, ...]:
    matches: list[Match | Action] = []
    target = ""
    returns_past = False
    of_target: list[str] = []
    to_target = False
    for match in _options(words):
        if match.name in ("-j", "-g"):
            target, returns_past, to_target = match.value, match.name == "-g", True
            of_target += match.values[1:]
            continue
        to_target = to_target and match.name not in _OF_RULE
        if to_target:
            of_target += [*(("!",) if match.negated else ()), match.name, *match.values]
        else:
            matches.append(match)
    return (*matches, Action(target, tuple(of_target), returns_past)) if target else tuple(matches)


def _options(words: list[tuple[str, bool]]) -> Iterator[Match]:
    """Each option with the words behind it. A quoted word is never an option."""
    at, negation = 0, ""
    while at < len(words):
        word, _ = words[at]
        at += 1
        if word == "!":
            negation = "!"
            continue
        name = _SHORT.get(word, word)
        end = at + 1 if name in _TEXTS or name in _QUOTED else at
        while end < len(words) and (words[end][1] or not (words[end][0] == "!" or _is_option(words[end][0]))):
            end += 1
        yield Match(name, tuple(value for value, _ in words[at:end]), negation)
        at, negation = end, ""


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit()


def split(text: str) -> list[tuple[str, bool]]:
    """The words of a line, and whether each stood in quotes. Raises ``ValueError`` where a quote has no end.

    In quotes, iptables-save writes a backslash before a quote, an apostrophe and a backslash.
    """
    if '"' not in text:
        return [(word, False) for word in text.split()]
    words: list[tuple[str, bool]] = []
    if "\\" not in text:
        pieces = text.split('"')
        if not len(pieces) % 2:
            raise ValueError(text)
        for number, piece in enumerate(pieces):
            words += [(piece, True)] if number % 2 else [(word, False) for word in piece.split()]
        return words
    rest = _WORD.sub("", text)
    if rest.strip():
        raise ValueError(text)
    for word in _WORD.finditer(text):
        quoted = word[2] is None
        words.append((_ESCAPED.sub(r"\1", word[1]) if quoted else word[2], quoted))
    return words


def print_rule(rule: Rule) -> str:
    """The rule as iptables-save prints it."""
    if rule.is_policy:
        return f"-P {rule.chain} {rule.target}"
    words = ["-I" if rule.inserted else "-A", rule.chain]
    for part in rule.parts:
        if isinstance(part, Action):
            words += ["-g" if part.returns_past else "-j", part.name, *_printed(part.words)]
        else:
            words += [*((part.operator,) if part.operator else ()), *_printed((part.name, *part.values))]
    return " ".join(words)


def _printed(words: tuple[str, ...]) -> Iterator[str]:
    name = ""
    for word in words:
        if name in _QUOTED or (name in _TEXTS and not _BARE.fullmatch(word)):
            yield '"' + _SPECIAL.sub(r"\\\1", word) + '"'
        else:
            yield f"{word} " if word == _SPACED and name not in _TEXTS else word
        name = "" if name in _TEXTS or name in _QUOTED else word
