"""The evidence of one probe as files: enough to read what happened, and to judge it again anywhere.

Owns: which files a bundle has, and ``Recorded``, the one that is judged again.
Must not: write or read files (the caller does), or judge.

A bundle is a directory::

    case.json        the probe, the errand, what was seen, and the verdicts of the run: see ``Recorded``
    explanation.txt  the verdict in words
    trace.txt        the way of one more packet, rule by rule, if one was traced
    capture.pcapng   the frames of the first flows at every tap, each with its flow as comment
    rules/NODE.txt   the rules of each node, with counters, as they stood after the probe
    plan.json        namespaces, links, addresses, routes and sysctls of the lab
    scenario.lab.yaml  the scenario as it was
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lab.codec import CodecError, dumps, loads
from lab.errors import ScenarioError
from lab.ip import IPAddress
from lab.plan.errand import Errand
from lab.plan.model import Plan
from lab.report.pcapng import capture
from lab.scenario.model import Probe
from lab.verdict.evidence import Evidence
from lab.verdict.explain import explain
from lab.verdict.journey import journey
from lab.verdict.model import ProbeVerdict, Verdict

__all__ = ["CASE", "Circumstances", "Recorded", "bundle", "read_case"]

CASE: Final = "case.json"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Under what a run took place: versions, engine, and the order of source ports (the seed)."""

    proxylab: str
    kernel: str
    engine: str
    iptables: str
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A probe as it was sent, judged and recorded. ``source`` is what ``expect.source`` came to in that lab."""

    format: int = _FORMAT
    circumstances: Circumstances
    probe: Probe
    errand: Errand
    source: IPAddress | None
    evidence: Evidence
    traced: Evidence | None
    verdicts: tuple[Verdict, ...]


def bundle(
    verdict: ProbeVerdict,
    *,
    circumstances: Circumstances,
    source: IPAddress | None,
    plan: Plan,
    rules: Mapping[str, str],
    scenario: bytes,
) -> dict[str, bytes]:
    """The files of a bundle by their path in it."""
    recorded = Recorded(
        circumstances=circumstances,
        probe=verdict.probe,
        errand=verdict.errand,
        source=source,
        evidence=verdict.evidence,
        traced=verdict.traced,
        verdicts=verdict.verdicts,
    )
    frames = verdict.evidence.frames + (verdict.traced.frames if verdict.traced else ())
    files = {
        CASE: dumps(recorded, Recorded),
        "explanation.txt": _text(explain(verdict)),
        "capture.pcapng": capture(frames),
        "plan.json": dumps(plan, Plan),
        "scenario.lab.yaml": scenario,
        **{f"rules/{node}.txt": text.encode() for node, text in rules.items()},
    }
    if verdict.traced is not None:
        files["trace.txt"] = _text(journey(verdict.errand, verdict.traced))
    return files


def read_case(file: str, data: bytes) -> Recorded:
    """The case of a bundle.

    Raises:
        ScenarioError: the file is no case, or one of another version of proxylab.
    """
    try:
        recorded = loads(data, Recorded)
    except CodecError as error:
        raise ScenarioError([f"{file}: not a recorded case, or one of another version of proxylab: {error}"]) from None
    if recorded.format != _FORMAT:
        raise ScenarioError([f"{file}: format {recorded.format} is not {_FORMAT}, which this version reads"])
    return recorded


def _text(lines: tuple[str, ...]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
