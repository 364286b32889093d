"""An audit of a made-up cluster, whose questions were answered by evidence that is made up, too."""

from judging import DELIVERED, DROPPED, dropped_evidence, judged
from msgspec.structs import replace

from proxylab.features.audit.findings import Audit, AuditAnswer
from proxylab.features.audit.questions import AuditQuestion
from proxylab.features.audit.senders import SenderKind
from proxylab.scenario.words import Outcome
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, ProbeVerdict

__all__ = ["RIGHT", "answer", "asked", "audit_of", "promised", "wrong"]

_ONE = replace(DELIVERED, backends=("echo-2",))
RIGHT = judged(_ONE, _ONE.evidence(_ONE.round_trip(0, "echo-2")))


def wrong() -> ProbeVerdict:
    """A flow that was dropped, and a promise that it is delivered."""
    dropped = judged(DROPPED, dropped_evidence(DROPPED))
    expect = replace(dropped.probe.expect, outcome=Outcome.DELIVERED, follows={"outcome": ("frontend-clusterIP",)})
    return judge(replace(dropped.probe, expect=expect), dropped.resolved, None, dropped.evidence)


def answer(verdict: ProbeVerdict, kind: SenderKind = SenderKind.NEAR, service: str = "shop/web") -> AuditAnswer:
    frontend = "clusterIP 10.96.0.10:80/TCP"
    question = AuditQuestion(service=service, frontend=frontend, kind=kind, probe=verdict.probe)
    return AuditAnswer(question, replace(verdict, rerun_command="proxylab audit shop.yaml"))


def asked(verdict: ProbeVerdict, name: str = "a question", service: str = "shop/web") -> AuditAnswer:
    """An answer to the question of that name."""
    probe = replace(verdict.case.probe, name=name)
    return answer(replace(verdict, case=replace(verdict.case, probe=probe)), service=service)


def promised(verdict: ProbeVerdict, outcome: str, row: str, judgement: Judgement = Judgement.PASS) -> ProbeVerdict:
    """The verdict with another promised outcome, which follows from that row."""
    changed = (
        replace(each, expected=outcome, observed=outcome, follows=(row,), judgement=judgement)
        if each.expectation == "outcome"
        else each
        for each in verdict.verdicts
    )
    return replace(verdict, verdicts=tuple(changed))


def audit_of(*answers: AuditAnswer) -> Audit:
    return Audit(
        subject="shop.yaml",
        engine="embedded/iptables",
        answers=answers,
        undialled={"shop/db": "a headless Service has no frontend: clients dial its pods"},
        missing=(SenderKind.NEIGHBOUR,),
        seconds=1.25,
    )
