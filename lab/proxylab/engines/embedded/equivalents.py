"""Mutants of rules that no packet can tell from the rule, each with its proof.

``proxylab mutate`` does not run these mutants. A row is a mode, classes of rules, a change, and why the kernel treats
every packet of every scenario alike. Without such a proof, a mutant that nothing notices needs a probe.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from proxylab.engines.embedded.mutation import ABSENT

__all__ = ["proof_of"]


class _Equivalent(NamedTuple):
    """One row."""

    mode: str
    classes: Sequence[str]
    changes: Sequence[str]
    proof: str


_EQUIVALENTS: Final = (
    _Equivalent(
        "iptables",
        ("nat KUBE-FW-* # other traffic to SERVICE will be dropped by KUBE-PROXY-FIREWALL",),
        (ABSENT,),
        "a rule without target does nothing but count",
    ),
)


def proof_of(mode: str, rule_class: str, change: str) -> str:
    """Why that mutant is equivalent; empty if nothing proves it."""
    return next(
        (
            each.proof
            for each in _EQUIVALENTS
            if each.mode == mode and rule_class in each.classes and change in each.changes
        ),
        "",
    )
