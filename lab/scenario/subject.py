"""The probe that is being checked, and what is around it.

Owns: ``Subject``.
Must not: check anything (``probes`` and ``expectations`` do).
"""

from collections.abc import Mapping

from lab.frozen import dataclass
from lab.scenario.document import Place
from lab.scenario.inventory import Inventory
from lab.scenario.manifests import Manifests
from lab.scenario.parts import Parts, ProbeParts
from lab.scenario.problems import Problems
from lab.scenario.schema.machines import PodShape

__all__ = ["Subject"]


@dataclass(frozen=True, slots=True)
class Subject:
    """One probe among the scenario it stands in, as that is when the probe is sent.

    ``place`` is the probe's. ``pods`` are the single pods by name, ``None`` where they cannot be known.
    """

    probe: ProbeParts
    place: Place
    parts: Parts
    inventory: Inventory
    manifests: Manifests
    pods: Mapping[str, PodShape] | None
    problems: Problems
