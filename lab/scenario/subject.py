"""The probe that is being checked, and what is around it.

Owns: ``Subject``.
Must not: check anything (``probes`` and ``expectations`` do).
"""

from dataclasses import dataclass

from lab.scenario.document import Place
from lab.scenario.inventory import Inventory
from lab.scenario.manifests import Manifests
from lab.scenario.parts import Parts, ProbeParts
from lab.scenario.problems import Problems

__all__ = ["Subject"]


@dataclass(frozen=True, slots=True)
class Subject:
    """One probe among the scenario it stands in. ``place`` is the probe's."""

    probe: ProbeParts
    place: Place
    parts: Parts
    inventory: Inventory
    manifests: Manifests
    problems: Problems
