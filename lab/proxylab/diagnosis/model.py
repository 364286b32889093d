"""What a diagnosis is made of.

Owns: the stations in their order, ``Finding`` for one of them, and ``Diagnosis``.
Must not: judge, or know how a finding is shown.
"""

from enum import StrEnum

from proxylab.frozen import dataclass

__all__ = ["Diagnosis", "Finding", "Stage", "Standing", "breaks", "holds", "nothing", "unclear"]


class Stage(StrEnum):
    """Where a packet to a Service may come to grief, in the order in which one is looked at after the other."""

    NAME = "name"
    ENDPOINTS = "endpoints"
    ENGINE = "engine"
    ENTRY = "entry rules"
    BALANCING = "balancing"
    DNAT = "DNAT"
    MASQUERADE = "masquerade"
    HAIRPIN = "hairpin"
    HEALTH = "health"


class Standing(StrEnum):
    """What was found of a station. ``unclear`` is what lacks a witness, and it is not green."""

    HOLDS = "holds"
    BREAKS = "breaks"
    UNCLEAR = "unclear"
    NOTHING = "nothing to look at"
    UNSEEN = "not looked at"


STOPPING = frozenset({Standing.BREAKS, Standing.UNCLEAR})
"""What makes the stations behind it meaningless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found of one station.

    Attributes:
        stage: which.
        standing: in a word.
        seen: what was seen, in clauses without a full stop; of what breaks, that first.
        cause: of what breaks or is unclear, the sentence that says why.
        look_at: then, what to type to see it, without the name of the lab.
    """

    stage: Stage
    standing: Standing
    seen: tuple[str, ...]
    cause: str = ""
    look_at: tuple[str, ...] = ()

    @property
    def stops(self) -> bool:
        """Whether it makes the stations behind it meaningless."""
        return self.standing in STOPPING


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The whole round.

    Attributes:
        service: ``NAMESPACE/NAME``.
        engine: which was looked at.
        findings: one for every station, in their order.
    """

    service: str
    engine: str
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> Finding | None:
        """The station at which it breaks, or is unclear; ``None`` if all stations hold."""
        return next((each for each in self.findings if each.stops), None)

    @classmethod
    def of(cls, service: str, engine: str, found: tuple[Finding, ...]) -> "Diagnosis":
        """The diagnosis when nothing more is looked at: of stations that were not, it says why."""
        looked_at = {each.stage for each in found}
        last = found[-1]
        standing, seen = Standing.UNSEEN, f"not looked at, since {last.stage} {_verb(last)}"
        if last.standing is Standing.NOTHING:
            standing, seen = Standing.NOTHING, "likewise"
        rest = tuple(Finding(stage=each, standing=standing, seen=(seen,)) for each in Stage if each not in looked_at)
        return cls(service=service, engine=engine, findings=(*found, *rest))


def holds(stage: Stage, *seen: str) -> Finding:
    """A station that holds."""
    return Finding(stage=stage, standing=Standing.HOLDS, seen=seen)


def nothing(stage: Stage, why: str) -> Finding:
    """A station that has nothing of this Service."""
    return Finding(stage=stage, standing=Standing.NOTHING, seen=(why,))


def breaks(stage: Stage, seen: tuple[str, ...], cause: str, *look_at: str) -> Finding:
    """A station that breaks. ``cause`` is a sentence."""
    return Finding(stage=stage, standing=Standing.BREAKS, seen=seen, cause=cause, look_at=look_at)


def unclear(stage: Stage, seen: tuple[str, ...], cause: str, *look_at: str) -> Finding:
    """A station of which nobody knows."""
    return Finding(stage=stage, standing=Standing.UNCLEAR, seen=seen, cause=cause, look_at=look_at)


def _verb(finding: Finding) -> str:
    plural = finding.stage in (Stage.ENDPOINTS, Stage.ENTRY)
    if finding.standing is Standing.UNCLEAR:
        return "are unclear" if plural else "is unclear"
    return "break" if plural else "breaks"
