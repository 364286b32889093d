"""Recorded probes of earlier formats, brought to the current one, since people keep bundles beside reports for long.

A new field with a default asks nothing: a lab that recorded without it saw nothing of that kind. Where a field goes or
gets another name, the number of the format rises, and ``UPGRADES`` brings documents of the number before to it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

Document = dict[str, Any]
"""A recorded probe as it stands in its file. Others may have written it, so each part may be of any type."""


def _with_expected_addresses(case: Document) -> None:
    """Name the addresses of a dialled name as format 7 does; the last labs of format 6 did so already."""
    resolved = case.get("resolved")
    question = resolved.get("question") if isinstance(resolved, dict) else None
    if isinstance(question, dict):
        for old, new in (("due", "expected"), ("wanted", "address")):
            if old in question:
                question.setdefault(new, question.pop(old))


UPGRADES: Final[Mapping[int, Callable[[Document], None]]] = {6: _with_expected_addresses}
"""By the format of a recorded probe, what makes a document of the next one."""
