"""The parts of a diagnosis: its stages in their order, the ``Finding`` of one stage, and ``Diagnosis``."""

from enum import StrEnum

from msgspec import Struct


class Stage(StrEnum):
    """The points at which a packet to a Service may fail, in the order in which a diagnosis checks them."""

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
    """The result of a stage. ``unclear`` means that evidence is missing; it does not pass."""

    HOLDS = "holds"
    BREAKS = "breaks"
    UNCLEAR = "unclear"
    NOTHING = "nothing to look at"
    UNSEEN = "not looked at"


STOPPING = frozenset({Standing.BREAKS, Standing.UNCLEAR})
"""The results that make later stages meaningless."""


class Finding(Struct, frozen=True, kw_only=True):
    """The finding of one stage.

    Attributes:
        seen: clauses without a full stop, the one that breaks first.
        cause: why the stage breaks or is unclear, as a sentence.
        look_at: commands that show the cause, without the name of the lab.
    """

    stage: Stage
    standing: Standing
    seen: tuple[str, ...]
    cause: str = ""
    look_at: tuple[str, ...] = ()

    @property
    def stops(self) -> bool:
        """Whether it makes later stages meaningless."""
        return self.standing in STOPPING


class Diagnosis(Struct, frozen=True, kw_only=True):
    """The whole diagnosis.

    Attributes:
        service: ``NAMESPACE/NAME``.
        findings: one for every stage, in their order.
    """

    service: str
    engine: str
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> Finding | None:
        """The first stage that breaks or is unclear; ``None`` if all stages hold."""
        return next((each for each in self.findings if each.stops), None)

    @classmethod
    def of(cls, service: str, engine: str, found: tuple[Finding, ...]) -> "Diagnosis":
        """The diagnosis of the stages checked so far; each remaining stage gets the reason why it was not."""
        looked_at = {each.stage for each in found}
        last = found[-1]
        standing, seen = Standing.UNSEEN, f"not looked at, since {last.stage} {_verb(last)}"
        if last.standing is Standing.NOTHING:
            standing, seen = Standing.NOTHING, "likewise"
        rest = tuple(Finding(stage=each, standing=standing, seen=(seen,)) for each in Stage if each not in looked_at)
        return cls(service=service, engine=engine, findings=(*found, *rest))


def holds(stage: Stage, *seen: str) -> Finding:
    return Finding(stage=stage, standing=Standing.HOLDS, seen=seen)


def nothing(stage: Stage, why: str) -> Finding:
    """A stage that does not concern this Service."""
    return Finding(stage=stage, standing=Standing.NOTHING, seen=(why,))


def breaks(stage: Stage, seen: tuple[str, ...], cause: str, *look_at: str) -> Finding:
    """A stage that breaks. ``cause`` is a sentence."""
    return Finding(stage=stage, standing=Standing.BREAKS, seen=seen, cause=cause, look_at=look_at)


def unclear(stage: Stage, seen: tuple[str, ...], cause: str, *look_at: str) -> Finding:
    """A stage whose evidence is missing. ``cause`` is a sentence."""
    return Finding(stage=stage, standing=Standing.UNCLEAR, seen=seen, cause=cause, look_at=look_at)


def _verb(finding: Finding) -> str:
    plural = finding.stage in (Stage.ENDPOINTS, Stage.ENTRY)
    if finding.standing is Standing.UNCLEAR:
        return "are unclear" if plural else "is unclear"
    return "break" if plural else "breaks"
