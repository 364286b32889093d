"""The third station: does an engine live in every node, and has it heard the news.

Owns: ``judge_engines``.
Must not: ask them.
"""

from collections.abc import Sequence

from proxylab.diagnosis.model import Finding, Stage, breaks, holds
from proxylab.evidence.engine_progress import ProxyRecord
from proxylab.evidence.words import listed

__all__ = ["judge_engines"]

_OK = 200


def judge_engines(records: Sequence[ProxyRecord]) -> Finding:
    """All of them live, are healthy, and have programmed the newest revision."""
    for record in records:
        fault, cause = _fault(record)
        if cause:
            return breaks(Stage.ENGINE, (fault,), cause, f"logs {record.node}", f"rules {record.node}")
    health = all(record.asked and _well(record) for record in records)
    lives = "lives" if len(records) == 1 else "live"
    seen = [f"{listed([record.node for record in records])} {lives}"]
    seen += ["/healthz says 200"] if health else []
    seen += [
        f"{each.node} is not eligible for balancers: /healthz {each.healthz}" for each in records if not each.eligible
    ]
    revisions = {record.progress.due for record in records if record.progress.reflects is not None}
    if revisions:
        seen.append(f"rules of revision {max(revisions)}, which is the newest")
    gone = [record.node for record in records if record.progress.reflects is None]
    if gone:
        seen.append(f"the rules of {listed(gone)} do not tell their revision")
    return holds(Stage.ENGINE, *seen)


def _well(record: ProxyRecord) -> bool:
    return not record.asked or record.healthz == _OK


def _fault(record: ProxyRecord) -> tuple[str, str]:
    """What is wrong with one of them, in a clause and in a sentence; both are empty where nothing is."""
    node, progress = record.node, record.progress
    said = progress.trouble.strip().splitlines()
    trouble = f": {said[0]}" if said else ""
    if not progress.runs:
        stale = "" if progress.reflects is None else ", and its rules stay as they last were"
        return f"the engine of {node} does not run", f"the engine of {node} does not run{trouble}{stale}."
    if progress.reflects is not None and progress.reflects < progress.due:
        last = f", and it last said{trouble}" if trouble else ""
        behind = f"its rules are of revision {progress.reflects}, and the API's is {progress.due}"
        return f"the engine of {node} is behind", f"the engine of {node} is behind: {behind}{last}."
    if record.asked and record.healthz is None:
        return f"nobody answers {record.asked}", f"nobody on {node} answers {record.asked}{trouble}."
    if not _well(record) and record.eligible:
        status = f"the engine of {node} says that it is not healthy: {record.asked} answers {record.healthz}"
        return f"{node}: /healthz {record.healthz}", f"{status}{trouble}."
    return "", ""
