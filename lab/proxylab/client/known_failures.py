"""Opens a lab, or recognises the failure of its engine that ``spec.except`` foresees.

``proxylab run`` and the pytest plugin use it.
"""

from collections.abc import Callable
from typing import TypeVar

from proxylab.errors import EngineError
from proxylab.scenario.model import Scenario
from proxylab.verdict.model import KnownFailure

__all__ = ["open_or_foresee"]

Opened = TypeVar("Opened")


def open_or_foresee(open_lab: Callable[[Scenario], Opened], scenario: Scenario) -> Opened | KnownFailure:
    """Open the lab of a scenario, or return the engine's failure if the scenario foresees it.

    Raises:
        EngineError: an engine failed in a way that the scenario does not foresee, or a foreseen failure did not happen.
        LabError: every other error of ``open_lab``.
    """
    failure = next(iter(scenario.failures), None)
    try:
        lab = open_lab(scenario)
    except EngineError as error:
        if failure is None:
            raise
        line_found = next((line for line in reversed(error.log.splitlines()) if failure.says in line), "")
        if not line_found:
            what = f"{error.what}; its log has no {failure.says!r}, which {failure.position} foresees"
            raise EngineError(error.node, what, error.log) from error
        return KnownFailure(failure.because, line_found.strip(), failure.position)
    if failure is not None:
        node = scenario.nodes[0].name
        what = f"it programmed what {failure.position} says it cannot ({failure.because}); narrow that exception"
        raise EngineError(node, what)
    return lab
