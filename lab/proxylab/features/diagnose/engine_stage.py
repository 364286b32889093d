"""The stage ``engine``: does an engine run in every node, and is it up to date."""

from collections.abc import Sequence

from proxylab.evidence.engine_progress import ProxyRecord
from proxylab.evidence.words import listed
from proxylab.features.diagnose.model import Finding, Stage, breaks, holds

_OK = 200


def judge_engines(records: Sequence[ProxyRecord]) -> Finding:
    """Judge whether all engines run, are healthy, and have programmed the newest revision."""
    for record in records:
        fault, cause = _fault(record)
        if cause:
            return breaks(Stage.ENGINE, (fault,), cause, f"logs {record.node}", f"rules {record.node}")
    health = all(record.asked and _well(record) for record in records)
    run = "the engine of {} runs" if len(records) == 1 else "the engines of {} run"
    seen = [run.format(listed([record.node for record in records]))]
    seen += ["/healthz answers 200"] if health else []
    seen += [
        f"{each.node} is not eligible for balancers: /healthz {each.healthz}" for each in records if not each.eligible
    ]
    revisions = {record.progress.due for record in records if record.progress.reflects is not None}
    if revisions:
        seen.append(f"rules of revision {max(revisions)}, the newest")
    gone = [record.node for record in records if record.progress.reflects is None]
    if gone:
        seen.append(f"the rules of {listed(gone)} do not show their revision")
    return holds(Stage.ENGINE, *seen)


def _well(record: ProxyRecord) -> bool:
    return not record.asked or record.healthz == _OK


def _fault(record: ProxyRecord) -> tuple[str, str]:
    """An engine's fault as a clause and as a sentence; both empty without one."""
    node, progress = record.node, record.progress
    lines = progress.trouble.strip().splitlines()
    trouble = f": {lines[0]}" if lines else ""
    if not progress.runs:
        stale = "" if progress.reflects is None else ", and its rules stay as they last were"
        return f"the engine of {node} does not run", f"the engine of {node} does not run{trouble}{stale}."
    if progress.reflects is not None and progress.reflects < progress.due:
        last = f"; its last error{trouble}" if trouble else ""
        behind = f"its rules are of revision {progress.reflects}, and the API's is {progress.due}"
        return f"the engine of {node} is behind", f"the engine of {node} is behind: {behind}{last}."
    if record.asked and record.healthz is None:
        return f"no answer from {record.asked}", f"{record.asked} on {node} does not answer{trouble}."
    if not _well(record) and record.eligible:
        status = f"the engine of {node} is not healthy: {record.asked} answers {record.healthz}"
        return f"{node}: /healthz {record.healthz}", f"{status}{trouble}."
    return "", ""
