"""The one number that a run comes to.

Owns: which exit code stands for a set of results.
Must not: end the process.
"""

from collections.abc import Sequence

from lab.errors import ExitCode
from lab.verdict.model import Judgement, ScenarioResult

__all__ = ["exit_code"]

_FAULTS_WORST_FIRST = (ExitCode.INTERNAL, ExitCode.SCENARIO, ExitCode.CAPABILITY)


def exit_code(results: Sequence[ScenarioResult]) -> ExitCode:
    """The exit code of a run, worst first.

    An error of ours (3) and a scenario that cannot be read (2) come before any verdict, since what they kept from
    being judged is not known; then fail (1), and inconclusive where nothing failed (6). A machine that lacks something
    (4) counts only where nothing at all was judged, and nothing selected (5) where nothing was skipped either.
    """
    faults = {result.fault.exit_code for result in results if result.fault is not None}
    for code in _FAULTS_WORST_FIRST[:2]:
        if code in faults:
            return code
    judgements = {each.overall for result in results for each in result.judged}
    if Judgement.FAIL in judgements or ExitCode.FAILED in faults:
        return ExitCode.FAILED
    if Judgement.INCONCLUSIVE in judgements or ExitCode.INCONCLUSIVE in faults:
        return ExitCode.INCONCLUSIVE
    if Judgement.PASS in judgements:
        return ExitCode.OK
    skipped = Judgement.SKIP in judgements or any(result.skipped is not None for result in results)
    return ExitCode.CAPABILITY if skipped or ExitCode.CAPABILITY in faults else ExitCode.NOTHING_SELECTED
