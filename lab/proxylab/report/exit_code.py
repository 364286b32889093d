"""The exit code of a run: the worst of what its probes and errors came to."""

from collections.abc import Sequence
from typing import Protocol

from proxylab.errors import ExitCode
from proxylab.verdict.model import Judgement


class _Judgeable(Protocol):
    @property
    def overall(self) -> Judgement:
        """The worst of its verdicts."""


class _Fault(Protocol):
    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""


class AnyResult(Protocol):
    """What counts of a scenario's result: a ``ScenarioResult`` has it, and a scenario in a JSON document of a run."""

    @property
    def file(self) -> str:
        """As the user named it."""

    @property
    def engine(self) -> str:
        """As ``--engine`` spells it."""

    @property
    def kernel(self) -> str:
        """As ``--kernel`` spells it."""

    @property
    def seconds(self) -> float:
        """Its duration."""

    @property
    def overall(self) -> Judgement | None:
        """The worst judgement of its probes and steps."""

    @property
    def judged(self) -> Sequence[_Judgeable]:
        """Its probes and steps."""

    @property
    def skipped(self) -> object | None:
        """What the machine lacks for it, or ``None``."""

    @property
    def fault(self) -> _Fault | None:
        """The error that ended it, or ``None``."""

    @property
    def foreseen(self) -> object | None:
        """The engine failure that it foresees, or ``None``."""


_FAULTS_WORST_FIRST = (ExitCode.INTERNAL, ExitCode.SCENARIO, ExitCode.CAPABILITY)


def exit_code(results: Sequence[AnyResult]) -> ExitCode:
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
    on_each: dict[tuple[str, str], list[AnyResult]] = {}
    for result in results:
        on_each.setdefault((result.engine, result.kernel), []).append(result)
    if any(_is_skipped(found) for found in on_each.values()):
        return ExitCode.CAPABILITY
    passed = Judgement.PASS in judgements or any(result.foreseen is not None for result in results)
    return ExitCode.OK if passed else ExitCode.NOTHING_SELECTED


def _is_skipped(results: Sequence[AnyResult]) -> bool:
    """Whether something was skipped and nothing was judged."""
    judgements = {each.overall for result in results for each in result.judged}
    lacking = any(
        result.skipped is not None or (result.fault is not None and result.fault.exit_code is ExitCode.CAPABILITY)
        for result in results
    )
    passed = Judgement.PASS in judgements or any(result.foreseen is not None for result in results)
    return not passed and (lacking or Judgement.SKIP in judgements)
