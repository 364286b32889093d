"""Recorded probes and steps of earlier formats, brought to the current one, since people keep bundles beside reports.

A new field with a default asks nothing: a lab that recorded without it saw nothing of that kind. Where a field goes, or
has another name or type, the number of the format rises, and these tables bring documents of the number before to it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from proxylab.scenario.node_engines import EngineAction

Document = dict[str, Any]
"""A recorded probe or step as it stands in its file. Others may have written it, so each part may be of any type."""

Upgrades = Mapping[int, Callable[[Document], None]]
"""By a format, what makes a document of the next one."""


def _rename_addresses(case: Document) -> None:
    """Format 7 has other names for the addresses of a dialled name; the last labs of format 6 had them already."""
    question = _within(case, "resolved", "question")
    for old, new in (("due", "expected"), ("wanted", "address")):
        if old in question:
            question.setdefault(new, question.pop(old))


def _separate_modes(step: Document) -> None:
    """Format 6 says of an engine what is done to it, and as what it starts; before, a word stood for either.

    The last labs of format 5 wrote as those of format 6.
    """
    engines = _within(step, "step", "change", "engines")
    for node, word in engines.items():
        if isinstance(word, str):
            engines[node] = {"action" if word in tuple(EngineAction) else "engine": word}


def _within(document: Document, *keys: str) -> Document:
    """The mapping at these keys; an empty one where the document has something else."""
    found: Any = document
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


OF_PROBES: Final[Upgrades] = {6: _rename_addresses}
OF_STEPS: Final[Upgrades] = {5: _separate_modes}
