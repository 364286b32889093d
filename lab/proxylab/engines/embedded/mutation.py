"""Mutations of rules: a class of rules, and one change to each rule of the class.

Owns ``Mutation``, and ``mutated``, which changes the text of a load on its way to the kernel's tool. So the engine
believes that it has loaded what it rendered, and each later load has the same mutation.

The module ``mutants`` of a mode says to which class a line belongs, and what a line can become.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from proxylab.encoding import Record
from proxylab.errors import EngineError

ABSENT: Final = "the rule is absent"
"""The change that leaves nothing."""


class Mutation(Record, frozen=True):
    """One change to all rules of one class.

    Attributes:
        rule: the class: the rule without names, addresses and numbers.
        change: as ``MutantLines.mutants`` names it.
    """

    rule: str
    change: str


class Equivalent(Struct, frozen=True):
    """Mutants of rules that no packet can tell from the rule, with the proof: the kernel treats every packet alike.

    ``proxylab mutate`` does not run them. Without such a proof, a mutant that nothing notices needs a probe.

    Attributes:
        classes: of rules.
        changes: of each of the classes.
    """

    classes: Sequence[str]
    changes: Sequence[str]
    proof: str


class MutantLines(Struct, frozen=True):
    """The lines of one mode's texts.

    Attributes:
        classes: the class of each line of a text; empty for a line that is no rule.
        mutants: the lines that can stand in place of a line of a class, by the change.
        suggestion: the probe that would notice a change of a class.
        met: the beginning of the classes that a rule with a moved counter belongs to, from its table, chain and text.
    """

    classes: Callable[[str], Sequence[str]]
    mutants: Callable[[str, str], Mapping[str, Sequence[str]]]
    suggestion: Callable[[str, str], str]
    met: Callable[[str, str, str], str]


def mutated(text: str, mutation: Mutation, lines: MutantLines) -> str:
    """The text with the mutation in each rule of its class."""
    changed: list[str] = []
    for line, rule in zip(text.split("\n"), lines.classes(text), strict=True):
        changed += lines.mutants(rule, line).get(mutation.change, (line,)) if rule == mutation.rule else (line,)
    return "\n".join(changed)


def refused_mutant(node: str, mutation: Mutation, output: str) -> EngineError:
    """The error of a node whose kernel or tool refuses the mutated rules; ``output`` is the tool's."""
    return EngineError(node, f"cannot load its rules with a mutation ({mutation.rule}: {mutation.change})", output)
