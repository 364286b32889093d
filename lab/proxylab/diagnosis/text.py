"""Formats a diagnosis: its lines on a terminal, and its document for programs."""

from collections.abc import Sequence
from typing import Any

from proxylab.diagnosis.model import Diagnosis, Standing
from proxylab.evidence.words import listed
from proxylab.text import WIDTH, table, wrapped

__all__ = ["document_of", "lines_of"]

_SHORT = {Standing.NOTHING: "-", Standing.UNSEEN: "-"}


def lines_of(diagnosis: Diagnosis, commands: Sequence[str] = (), width: int = WIDTH) -> list[str]:
    """A table of stages, the sentence that names the cause, and commands that show it."""
    rows = [
        (each.stage.value, _SHORT.get(each.standing, each.standing.value), "; ".join(each.seen))
        for each in diagnosis.findings
    ]
    lines = [f"{diagnosis.service} on {diagnosis.engine}", *table(rows, "  ", width=width), ""]
    broken = diagnosis.broken
    if broken is None:
        held = [each.stage.value for each in diagnosis.findings if each.standing is Standing.HOLDS]
        return [*lines, *wrapped(f"every stage holds: {listed(held)}.", rest="", width=width)]
    what = "unclear" if broken.standing is Standing.UNCLEAR else "it breaks"
    lines += wrapped(f"{what} at {broken.stage}: {broken.cause}", rest="  ", width=width)
    return [*lines, "look at:", *(f"  {each}" for each in commands)]


def document_of(diagnosis: Diagnosis, commands: Sequence[str] = ()) -> dict[str, Any]:
    """The diagnosis as a document for programs."""
    broken = diagnosis.broken
    return {
        "service": diagnosis.service,
        "engine": diagnosis.engine,
        "holds": broken is None,
        "breaksAt": broken.stage.value if broken else None,
        "cause": broken.cause if broken else None,
        "lookAt": list(commands),
        "stages": [
            {"stage": each.stage.value, "standing": each.standing.value, "seen": list(each.seen)}
            for each in diagnosis.findings
        ],
    }
