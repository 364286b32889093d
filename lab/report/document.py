"""A run as a JSON document, for programs.

Owns: the shape of ``-o json``, which is documented here and stays as it is within an ``apiVersion``.
Must not: hold anything that a text report does not, such as the packets themselves (evidence bundles hold those).

The document (every key is always there; ``null`` where there is nothing to say)::

    apiVersion: proxylab/v1
    kind: RunReport
    exitCode: 1                        # as the command exits
    counts: {pass: 3, fail: 1, inconclusive: 0, skip: 0}          # probes
    scenarios:
    - file: scenarios/cluster-ip.lab.yaml
      name: cluster-ip
      engine: embedded/iptables
      case: bridge-ipv6                # the id of a case of its matrix; "" without one
      tags: [hairpin]
      judgement: fail                  # pass | fail | inconclusive | skip | null, if no probe was selected
      seconds: 0.31
      skipped: {missing: …, cure: …}   # or null
      fault: {exitCode: 1, message: …} # or null
      probes:
      - name: an outside client keeps its address
        position: {file: scenarios/cluster-ip.lab.yaml, line: 18, column: 5}
        judgement: fail
        seconds: 0.004
        reproduce: "proxylab run … --probe '…'"
        bundle: .proxylab/bundles/…    # the directory of its evidence, or null
        verdicts:
        - expectation: source          # outcome | reply | backends | source | spread | at
          judgement: fail
          expected: preserved (10.244.1.2)
          observed: 172.18.0.2
          reasons: [echo-1 saw it come from 172.18.0.2]
          witnesses: []
          position: {file: scenarios/cluster-ip.lab.yaml, line: 23, column: 15}
"""

import json
from collections import Counter
from collections.abc import Sequence

from lab.report.exits import exit_code
from lab.scenario.model import Position
from lab.verdict.explain import command
from lab.verdict.model import Judgement, ProbeVerdict, ScenarioResult, Verdict

__all__ = ["to_json"]

API_VERSION = "proxylab/v1"
KIND = "RunReport"


def to_json(results: Sequence[ScenarioResult]) -> str:
    """The JSON document of a run; see the module for its keys. Ends without a newline."""
    counts = Counter(probe.overall for result in results for probe in result.probes)
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "exitCode": int(exit_code(results)),
        "counts": {judgement.value: counts[judgement] for judgement in Judgement},
        "scenarios": [_scenario(result) for result in results],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _scenario(result: ScenarioResult) -> dict[str, object]:
    skipped, fault = result.skipped, result.fault
    return {
        "file": result.file,
        "name": result.name,
        "engine": result.engine,
        "case": result.case,
        "tags": list(result.tags),
        "judgement": result.overall,
        "seconds": round(result.seconds, 6),
        "skipped": {"missing": skipped.missing, "cure": skipped.cure} if skipped else None,
        "fault": {"exitCode": int(fault.exit_code), "message": fault.message} if fault else None,
        "probes": [_probe(probe) for probe in result.probes],
    }


def _probe(probe: ProbeVerdict) -> dict[str, object]:
    return {
        "name": probe.probe.name,
        "position": _position(probe.probe.position),
        "judgement": probe.overall,
        "seconds": round(probe.evidence.seconds, 6),
        "reproduce": " ".join(command(probe)).rstrip(),
        "bundle": probe.bundle or None,
        "verdicts": [_verdict(verdict) for verdict in probe.verdicts],
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    return {
        "expectation": verdict.expectation,
        "judgement": verdict.judgement,
        "expected": verdict.expected,
        "observed": verdict.observed,
        "reasons": list(verdict.reasons),
        "witnesses": list(verdict.witnesses),
        "position": _position(verdict.position),
    }


def _position(position: Position) -> dict[str, object]:
    return {"file": position.file, "line": position.line, "column": position.column}
