"""The exit code of a run: the worst of what its probes and errors came to."""

from collections.abc import Sequence

from proxylab.errors import ExitCode
from proxylab.verdict.model import Judgement, ScenarioResult

__all__ = ["exit_code"]

_FAULTS_WORST_FIRST = (ExitCode.INTERNAL, ExitCode.SCENARIO, ExitCode.CAPABILITY)


def exit_code(results: Sequence[ScenarioResult]) -> ExitCode:
    """The exit code of a run, worst first.

    A bug of proxylab (3) and an invalid scenario (2) come before any verdict, since they prevented an unknown number of
    verdicts; then fail (1), then inconclusive (6). A missing capability (4) counts only if nothing at all was judged on
    one of the engines, or on one of the kernels. Nothing selected (5) remains if nothing was skipped either.
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
    engines = dict.fromkeys(result.engine_on_kernel for result in results)
    if any(_is_skipped([result for result in results if result.engine_on_kernel == engine]) for engine in engines):
        return ExitCode.CAPABILITY
    passed = Judgement.PASS in judgements or any(result.foreseen is not None for result in results)
    return ExitCode.OK if passed else ExitCode.NOTHING_SELECTED


def _is_skipped(results: Sequence[ScenarioResult]) -> bool:
    """Whether something was skipped and nothing was judged."""
    judgements = {each.overall for result in results for each in result.judged}
    lacking = any(
        result.skipped is not None or (result.fault is not None and result.fault.exit_code is ExitCode.CAPABILITY)
        for result in results
    )
    passed = Judgement.PASS in judgements or any(result.foreseen is not None for result in results)
    return not passed and (lacking or Judgement.SKIP in judgements)
