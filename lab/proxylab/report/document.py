"""A run as a JSON document: the output of ``-o json``, which is stable within an ``apiVersion``.

The document has the contents of the text report. The packets themselves are in the bundles of evidence. Every key is
always present, with ``null`` for an absent value::

    apiVersion: proxylab/v1
    kind: RunReport
    exitCode: 1                        # as the command exits
    shard: 2/4                         # or null
    counts: {pass: 3, fail: 1, inconclusive: 0, skip: 0}          # probes and steps
    scenarios:
    - file: scenarios/cluster-ip.lab.yaml
      name: cluster-ip
      engine: embedded/iptables
      kernel: uml                      # as --kernel spells it
      release: 7.2.11                  # of the kernel, as uname prints it; null if no lab was built
      binary:                          # that ran as the proxy; null for an embedded engine
        program: kube-proxy
        version: v1.37.2-dirty         # as it prints it
        commit: 5f2c9d81a7e0…          # of its sources; null if unknown
        dirty: true                    # whether they were changed since; null if unknown
        origin: built in /home/me/kubernetes
        sha256: 999b6aaf524c…          # of its file
      case: bridge-ipv6                # the id of a case of its matrix; "" without one
      tags: [hairpin]
      judgement: fail                  # pass | fail | inconclusive | skip | null, if no probe was selected
      seconds: 0.31
      skipped: {missing: …, cure: …}   # or null
      fault: {exitCode: 1, message: …} # or null
      foreseen:                        # an engine that fails as spec.except says; or null
        {because: …, said: …, position: {file: scenarios/prefix.lab.yaml, line: 14, column: 5}}
      probes:
      - name: an outside client keeps its address
        position: {file: scenarios/cluster-ip.lab.yaml, line: 18, column: 5}
        judgement: fail
        seconds: 0.004
        reproduce: "proxylab run … --probe '…'"
        bundle: .proxylab/bundles/…    # the directory of its evidence, or null
        verdicts:
        - expectation: source          # outcome | endpoint | reply | backends | source | spread | at
          judgement: fail
          expected: preserved (10.244.1.2)
          observed: 172.18.0.2
          reasons: [echo-1 saw it come from 172.18.0.2]
          witnesses: []
          follows: [preserve-pod-at-cluster-ip]  # rows of the oracle, where the promises give the expectation
          position: {file: scenarios/cluster-ip.lab.yaml, line: 23, column: 15}
        frame:                         # a packet that differs from the expected one, or null
          packet: request              # request | reply
          at: echo-1/eth0              # where it came to the end of its way
          fields: [{field: from, expected: 10.244.1.2, observed: 172.18.0.2, differs: true}]
        promised: {}                   # these rows, by their ids: text, promises, and because, the document
      steps:                           # those that expect something of streams, or of connection tracking
      - name: the old one is gone
        position: {file: scenarios/cluster-ip.lab.yaml, line: 31, column: 5}
        judgement: fail
        seconds: 0.06
        reproduce: "proxylab run … --probe '…'"
        bundle: null
        verdicts:
        - expectation: queries.lost    # STREAM.KEY | conntrack
          judgement: fail
          expected: "0"
          observed: "5"
          reasons: [5 of 6 packets were lost]
          witnesses: []
          follows: []
          position: {file: scenarios/cluster-ip.lab.yaml, line: 33, column: 15}
        timeline:                      # from the beginning of the step; stream is null for what is the step's own
        - {ms: 20.0, stream: queries, what: "packets 10 to 14: lost"}
      rules:                           # with --rule-coverage, else null: which of the proxies' rules its probes met
        kinds:
        - {mode: nftables, where: firewall-*, kind: firewall-* drop, rules: 1, met: 1, unmet: [], without: 0}
        uncounted: []
    rules:                             # with --rule-coverage, else null: of all scenarios, by engine
      kube-proxy/nftables:
        kinds:
        - mode: nftables
          where: firewall-*            # the chain, set or map, without the names of Services and endpoints
          kind: firewall-* ip saddr { NETWORKS } return
          rules: 4                     # of the kind; those alike on several nodes count once
          met: 0                       # how many of them a packet of a probe met
          unmet: ["firewall-XQNAR6PS-…: ip saddr 10.0.0.0/8 return"]   # one that none met
          without: 2                   # scenarios that have such rules and met none
        uncounted: []                  # probes whose packets some node could not count
"""

import json
from collections import Counter
from collections.abc import Sequence

from proxylab.oracle.rows import OracleRow, rows
from proxylab.report.exit_code import exit_code
from proxylab.report.frames import ComparedFrame
from proxylab.report.step_timeline import step_events
from proxylab.report.unmet_rules import by_engine, coverage_document
from proxylab.report.view import ProbeView, StepView, view_of
from proxylab.scenario.words import Position
from proxylab.verdict.model import Judgement, ProbeVerdict, ScenarioResult, StepVerdict, Verdict

API_VERSION = "proxylab/v1"
KIND = "RunReport"


def to_json(results: Sequence[ScenarioResult], shard: str | None = None) -> str:
    """The JSON document of a run, without a final newline; see the module for its keys."""
    counts = Counter(each.overall for result in results for each in result.judged)
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "exitCode": int(exit_code(results)),
        "shard": shard,
        "counts": {judgement.value: counts[judgement] for judgement in Judgement},
        "scenarios": [_scenario(result) for result in results],
        "rules": {engine: coverage_document(found) for engine, found in by_engine(results).items()} or None,
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _scenario(result: ScenarioResult) -> dict[str, object]:
    skipped, fault, foreseen = result.skipped, result.fault, result.foreseen
    return {
        "file": result.file,
        "name": result.name,
        "engine": result.engine,
        "kernel": result.kernel,
        "release": result.release or None,
        "binary": result.binary and result.binary.to_document(),
        "case": result.case,
        "tags": list(result.tags),
        "judgement": result.overall,
        "seconds": round(result.seconds, 6),
        "skipped": {"missing": skipped.missing, "cure": skipped.cure} if skipped else None,
        "fault": {"exitCode": int(fault.exit_code), "message": fault.message} if fault else None,
        "foreseen": foreseen
        and {"because": foreseen.because, "said": foreseen.said, "position": _position(foreseen.position)},
        "probes": [_probe(probe) for probe in result.probes],
        "steps": [_step(step) for step in result.steps],
        "rules": coverage_document(result.rules),
    }


def _probe(probe: ProbeVerdict) -> dict[str, object]:
    promised = {each: _promised(rows()[each]) for verdict in probe.verdicts for each in verdict.follows}
    view = ProbeView(probe)
    return {**_judged(view), "frame": view.frame and _frame(view.frame), "promised": promised}


def _frame(frame: ComparedFrame) -> dict[str, object]:
    return {
        "packet": frame.packet,
        "at": frame.where,
        "fields": [
            {"field": each.name, "expected": each.expected, "observed": each.observed, "differs": each.differs}
            for each in frame.fields
        ],
    }


def _judged(view: ProbeView | StepView) -> dict[str, object]:
    return {
        "name": view.verdict.written.name,
        "position": _position(view.verdict.written.position),
        "judgement": view.judgement,
        "seconds": round(view.verdict.seconds, 6),
        "reproduce": str(view.command),
        "bundle": view.verdict.bundle or None,
        "verdicts": [_verdict(verdict) for verdict in view.verdict.verdicts],
    }


def _step(step: StepVerdict) -> dict[str, object]:
    began = step.evidence.began
    return {
        **_judged(view_of(step)),
        "timeline": [
            {"ms": round((at - began) / 1e6, 3), "stream": stream or None, "what": what}
            for at, stream, what in step_events(step)
        ],
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    return {
        "expectation": verdict.expectation,
        "judgement": verdict.judgement,
        "expected": verdict.expected,
        "observed": verdict.observed,
        "reasons": list(verdict.reasons),
        "witnesses": list(verdict.witnesses),
        "follows": list(verdict.follows),
        "position": _position(verdict.position),
    }


def _promised(row: OracleRow) -> dict[str, object]:
    return {"text": row.text, "promises": list(row.promises), "because": row.because}


def _position(position: Position) -> dict[str, object]:
    return {"file": position.file, "line": position.line, "column": position.column}
