"""Scenarios that need what many kernels lack can fail, too: in a guest, each turns red without a part of the engine.

A guest reads each of the machine's files once, so each mutation gets a guest of its own.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from breakages import BODIES
from guests import OWN
from mutated_labs import MutatedLabs, name_of
from mutation import Mutation
from sandboxed import ROOT

from proxylab.verdict.model import Judgement

__all__ = ["IN_A_GUEST"]


@dataclass(frozen=True)
class InAGuest:
    """A mutation, and the probes and steps of the scenario that do not pass any more."""

    scenario: str
    mutation: Mutation
    red: frozenset[str]


NO_DNAT = Mutation(BODIES, "translation", "lambda scope, endpoint: ()")

IN_A_GUEST = [
    InAGuest(
        "sctp/connections",
        NO_DNAT,
        frozenset(
            {
                "ClusterIP over SCTP answers on associations from a pod",
                "ClusterIP over SCTP answers on an association of a pod to itself",
                "NodePort over SCTP answers on associations from outside",
                "NodePort over SCTP with policy Local answers and preserves the client IP",
                "ClusterIP over SCTP to a port without a listener is refused by an ABORT",
                "another pod becomes ready and the association stays with its pod",
                (
                    "another pod becomes ready and the association stays with its pod: "
                    "ClusterIP over SCTP reaches the new pod by new associations"
                ),
            }
        ),
    ),
]


@OWN
@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", IN_A_GUEST, ids=lambda row: row.scenario)
def test_what_needs_a_rule_turns_red_without_it_in_a_guest(row: InAGuest, tmp_path: Path) -> None:
    file = ROOT / "scenarios" / f"{row.scenario}.lab.yaml"
    with closing(MutatedLabs(tmp_path, kernel="uml")) as labs:
        verdicts = [each for _, judged in labs.run([file], row.mutation) for each in judged]
    assert {name_of(each) for each in verdicts if each.overall is not Judgement.PASS} == row.red
