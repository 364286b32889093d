"""A lab, or the failure of its engine that the scenario foresees.

Owns: ``open_or_foresee``: what ``spec.except`` says of engines, held against what they did. ``proxylab run`` and pytest
go by it.
Must not: build a lab, or print.
"""

from collections.abc import Callable
from typing import TypeVar

from proxylab.errors import EngineError
from proxylab.scenario.model import Scenario
from proxylab.verdict.model import Foreseen

__all__ = ["open_or_foresee"]

Opened = TypeVar("Opened")


def open_or_foresee(open_lab: Callable[[Scenario], Opened], scenario: Scenario) -> Opened | Foreseen:
    """The lab of a scenario; or what kept an engine from programming it, where that is what the scenario says.

    Raises:
        EngineError: an engine failed, and that or its words were not foreseen; or none failed, though one was to.
        LabError: whatever else ``open_lab`` meets.
    """
    failure = next(iter(scenario.failures), None)
    try:
        lab = open_lab(scenario)
    except EngineError as error:
        if failure is None:
            raise
        said = next((line for line in reversed(error.log.splitlines()) if failure.says in line), "")
        if not said:
            what = f"{error.what}, and does not say {failure.says!r}, as {failure.position} foresees"
            raise EngineError(error.node, what, error.log) from error
        return Foreseen(failure.because, said.strip(), failure.position)
    if failure is not None:
        node = scenario.nodes[0].name
        what = f"has programmed what {failure.position} says it cannot ({failure.because}); narrow that exception"
        raise EngineError(node, what)
    return lab
