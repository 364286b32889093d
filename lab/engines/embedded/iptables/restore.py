"""One load: the text for ``iptables-restore --noflush --counters`` that leads from what the kernel holds to a ruleset.

Owns: ``restore``, ``RestoreText``, and finding the line and the Service that a refusal is about.
Must not: render rules.

What iptables-restore does with the text: each table is replaced at its ``COMMIT`` as a whole; declaring a chain makes
it or empties it; with ``--noflush`` all that is not mentioned stays. The jumps of built-in chains that are absent stand
as ``-I`` lines in the same text, so that no packet sees half of the rules, and no process is spent on each jump.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lab.cluster.objects import Key
from lab.engines.embedded.iptables.held import Held
from lab.engines.embedded.iptables.names import SERVICE_CHAIN_PREFIXES, Chain, Table
from lab.engines.embedded.iptables.rules import Rule, Ruleset

__all__ = ["Line", "RestoreText", "restore"]

REFUSED_LINE = re.compile(r"\bline:?\s+(\d+)")
"""As all versions say it: ``line 5 failed``, ``Error occurred at line: 5``, ``line 5: RULE_APPEND failed``."""

Line = tuple[str, Key | None]
"""A line of the text and the Service it is there for, if there is one."""


@dataclass(frozen=True, slots=True)
class RestoreText:
    """The text of one load.

    Attributes:
        lines: without line feeds, each with the Service that it is for.
        leaves: what the kernel holds once it has been loaded.
    """

    lines: tuple[Line, ...]
    leaves: Held

    @property
    def text(self) -> str:
        """The text itself."""
        return "\n".join(line for line, _ in self.lines) + "\n"

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
    """The text that makes the kernel hold ``ruleset``, given what it holds.

    Chains that belong to service ports which are no more are emptied, so that nothing points to another of them, and
    then deleted.
    """
    declared: dict[Chain, Key | None] = dict.fromkeys(ruleset.shared)
    declared.update(dict.fromkeys(chain for chain in ruleset.kept if chain not in held.chains))
    declared.update({chain: port.service for port in ruleset.ports for chain in port.chains})
    stale = sorted(chain for chain in held.chains if _is_owned(chain) and chain not in declared)
    jumps = [jump for jump in ruleset.jumps if not held.has_jump(jump)]

    sections: dict[Table, list[Line]] = {table: [] for table in Table}
    for chain, service in (*declared.items(), *((chain, None) for chain in stale)):
        sections[chain.table].append((f":{chain.name} - [0:0]", service))
    for jump in jumps:
        sections[jump.chain.table].append((jump.line("-I"), None))
    for rule, service in _rules(ruleset):
        sections[rule.chain.table].append((rule.line(), service))
    for chain in stale:
        sections[chain.table].append((f"-X {chain.name}", None))

    lines: list[Line] = []
    for table, section in sections.items():
        if section:
            lines += [(f"*{table}", None), *section, ("COMMIT", None)]
    return RestoreText(tuple(lines), held.after(made=declared, removed=stale, jumps=jumps))


def _rules(ruleset: Ruleset) -> Iterator[tuple[Rule, Key | None]]:
    for rule in ruleset.head:
        yield rule, None
    for port in ruleset.ports:
        for rule in (*port.fronts, *port.bodies):
            yield rule, port.service
    for rule in ruleset.tail:
        yield rule, None


def _is_owned(chain: Chain) -> bool:
    return chain.table is Table.NAT and chain.name.startswith(SERVICE_CHAIN_PREFIXES)
