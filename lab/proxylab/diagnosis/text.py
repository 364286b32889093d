"""A diagnosis as it is shown.

Owns: its lines on a terminal, and its document.
Must not: judge, or colour anything.
"""

from collections.abc import Sequence
from typing import Any

from proxylab.diagnosis.model import Diagnosis, Standing
from proxylab.evidence.words import listed
from proxylab.text import WIDTH, table, wrapped

__all__ = ["document_of", "lines_of"]

_SHORT = {Standing.NOTHING: "-", Standing.UNSEEN: "-"}


def lines_of(diagnosis: Diagnosis, commands: Sequence[str] = (), width: int = WIDTH) -> list[str]:
    """A table of stations, the sentence that names the cause, and what to type.

    Args:
        diagnosis: the round.
        commands: ``look_at`` of what breaks, as they are to be typed.
        width: of the lines, where words allow it.
    """
    rows = [
        (each.stage.value, _SHORT.get(each.standing, each.standing.value), "; ".join(each.seen))
        for each in diagnosis.findings
    ]
    lines = [f"{diagnosis.service} on {diagnosis.engine}", *table(rows, "  ", width=width), ""]
    broken = diagnosis.broken
    if broken is None:
        held = [each.stage.value for each in diagnosis.findings if each.standing is Standing.HOLDS]
        return [*lines, *wrapped(f"every station holds: {listed(held)}.", rest="", width=width)]
    what = "unclear" if broken.standing is Standing.UNCLEAR else "it breaks"
    lines += wrapped(f"{what} at {broken.stage}: {broken.cause}", rest="  ", width=width)
    return [*lines, "look at:", *(f"  {each}" for each in commands)]


def document_of(diagnosis: Diagnosis, commands: Sequence[str] = ()) -> dict[str, Any]:
    """The same for programs."""
    broken = diagnosis.broken
    return {
        "service": diagnosis.service,
        "engine": diagnosis.engine,
        "holds": broken is None,
        "breaksAt": broken.stage.value if broken else None,
        "cause": broken.cause if broken else None,
        "lookAt": list(commands),
        "stations": [
            {"station": each.stage.value, "standing": each.standing.value, "seen": list(each.seen)}
            for each in diagnosis.findings
        ],
    }
