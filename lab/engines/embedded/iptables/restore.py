"""One load: the text for ``iptables-restore --noflush --counters`` that leads from what the kernel holds to a ruleset.

Owns: ``restore`` and ``restore_changes``, ``RestoreText``, and finding the line and the Service a refusal is about.
Must not: render rules.

What iptables-restore does with the text: each table is replaced at its ``COMMIT`` as a whole; declaring a chain makes
it or empties it; with ``--noflush`` all that is not mentioned stays. The jumps of built-in chains that are absent stand
as ``-I`` lines in the same text, so that no packet sees half of the rules, and no process is spent on each jump.

A *full* text goes by what was read back from the kernel. A *partial* one goes by the ruleset that was loaded last: it
writes the shared chains, and of the owned ones those of service ports that are not as they were.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from lab.cluster.objects import Key
from lab.engines.embedded.iptables.held import Held
from lab.engines.embedded.iptables.names import Chain, Table
from lab.engines.embedded.iptables.rules import PortRules, Rule, Ruleset

__all__ = ["Line", "RestoreText", "restore", "restore_changes"]

REFUSED_LINE = re.compile(r"\bline:?\s+(\d+)")
"""As all versions say it: ``line 5 failed``, ``Error occurred at line: 5``, ``line 5: RULE_APPEND failed``."""

Line = tuple[str, Key | None]
"""A line of the text and the Service it is there for, if there is one."""


@dataclass(frozen=True, slots=True)
class RestoreText:
    """The text of one load: its lines without line feeds, each with the Service that it is for."""

    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        """The text itself."""
        return "\n".join([line for line, _ in self.lines]) + "\n"

    def rule_counts(self) -> dict[str, int]:
        """How many rules it writes, by table."""
        counts: dict[str, int] = {}
        table = ""
        for line, _ in self.lines:
            if line.startswith("*"):
                table = line[1:]
                counts[table] = 0
            elif line.startswith("-A "):
                counts[table] += 1
        return counts

    def explain(self, output: str) -> str:
        """Which line, and which Service, the tool's ``output`` complains of; which tables are as before."""
        found = REFUSED_LINE.findall(output)
        number = int(found[-1]) if found else 0
        if not 0 < number <= len(self.lines):
            return "iptables-restore refused the rules"
        line, service = self.lines[number - 1]
        table = next(text for text, _ in reversed(self.lines[:number]) if text.startswith("*"))[1:]
        if line == "COMMIT":
            what = "a rule of the table, which the kernel does not take"
        else:
            what = f"line {number}{f' of {service}' if service else ''}: {line}"
        return f"iptables-restore refused {what}; table {table} is as it was before"


def restore(ruleset: Ruleset, held: Held) -> RestoreText:
    """The text that makes the kernel hold ``ruleset``, given what was read back from it."""
    wanted = {chain.name for port in ruleset.ports for chain in port.chains}
    missing = [chain for chain in ruleset.kept if chain not in held.chains]
    jumps = [jump for jump in ruleset.jumps if not held.has_jump(jump)]
    return _written(ruleset, ruleset.ports, made=missing, jumps=jumps, stale=held.owned_chains - wanted)


def restore_changes(ruleset: Ruleset, loaded: Ruleset) -> RestoreText:
    """The text that makes the kernel hold ``ruleset``, given that it holds ``loaded`` and nobody else has touched it.

    What does not depend on the objects (jumps, and chains that are only kept) stands already.
    """
    before = {id(port): port for port in loaded.ports}
    # Unchanged service ports are mostly the very same object; the others are compared by what they say.
    touched = [port for port in ruleset.ports if before.pop(id(port), None) is None]
    old = {port.chains: port for port in before.values()}
    changed = [port for port in touched if old.get(port.chains) != port]
    stale = {chain.name for port in before.values() for chain in port.chains}
    if stale:
        stale -= {chain.name for port in ruleset.ports for chain in port.chains}
    return _written(ruleset, changed, made=(), jumps=(), stale=stale)


def _written(
    ruleset: Ruleset, ports: Sequence[PortRules], *, made: Iterable[Chain], jumps: Iterable[Rule], stale: Iterable[str]
) -> RestoreText:
    """The text that rewrites the shared chains, and the owned ones of ``ports``.

    Stale chains belong to service ports that are no more. They are emptied first, so that none points to another.
    """
    sections: dict[Table, list[Line]] = {table: [] for table in Table}
    nat, gone = sections[Table.NAT], sorted(stale)
    for chain in (*ruleset.shared, *made):
        sections[chain.table].append((f":{chain.name} - [0:0]", None))
    # From the last name to the first: iptables-nft keeps its chains in order and walks them from the front to put in
    # each one, so that a large cluster takes it half the time.
    owned = [(f":{chain.name} - [0:0]", port.service) for port in ports for chain in port.chains]
    nat += sorted(owned, key=itemgetter(0), reverse=True)
    nat += [(f":{name} - [0:0]", None) for name in gone]
    for jump in jumps:
        sections[jump.chain.table].append((jump.line("-I"), None))
    _append_rules(sections, ruleset, {id(port) for port in ports})
    nat += [(f"-X {name}", None) for name in gone]

    lines: list[Line] = []
    for table, section in sections.items():
        if section:
            lines += [(f"*{table}", None), *section, ("COMMIT", None)]
    return RestoreText(tuple(lines))


def _append_rules(sections: Mapping[Table, list[Line]], ruleset: Ruleset, ports: Container[int]) -> None:
    """Shared rules all, owned ones of ``ports`` (by identity), in kube-proxy's order: port by port."""
    nat = sections[Table.NAT]
    for rule in ruleset.head:
        sections[rule.chain.table].append((rule.line(), None))
    for port in ruleset.ports:
        for rule in port.fronts:
            sections[rule.chain.table].append((rule.line(), port.service))
        if id(port) in ports:
            nat += [(rule.line(), port.service) for rule in port.bodies]
    for rule in ruleset.tail:
        sections[rule.chain.table].append((rule.line(), None))
