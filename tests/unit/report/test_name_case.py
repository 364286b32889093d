"""What a script asks for by name, and what its name servers say."""

from dataclasses import replace
from ipaddress import ip_address

from recorded import World

from lab.ip import Family, IPAddress, Protocol, Transport
from lab.plan.errand import Fence, Question
from lab.plan.model import Listener, Namespace, Plan, Role
from lab.report.reproduction.name import homes_of_names, name_case
from lab.verdict.evidence import Evidence, Lookup, NamedRecord
from lab.verdict.judge import judge
from lab.verdict.model import ProbeVerdict

RESOLVER, SERVER, CLUSTER_IP = map(ip_address, ("10.96.0.10", "10.244.0.2", "10.96.0.77"))
NAME = "echo.default.svc.cluster.local"
WORLD = World()
QUESTION = Question(
    names=(NAME, "echo.svc.cluster.local"),
    families=(Family.IPV4,),
    resolvers=(RESOLVER,),
    servers=(Fence(name="coredns", address=SERVER),),
    service="default/echo",
    port=80,
    protocol=Transport.TCP,
    due=(CLUSTER_IP,),
)
HOME = "coredns@node-a"
PLAN = Plan(
    namespaces=(
        Namespace(name=HOME, role=Role.POD, listeners=(Listener("coredns", Protocol.UDP, 53, serves_names=True),)),
        Namespace(name="echo-1", role=Role.POD, listeners=(Listener("echo-1", Protocol.UDP, 53),)),
    ),
    links=(),
    pods=(),
)


def asked(*lookups: Lookup) -> ProbeVerdict:
    errand = replace(WORLD.errand, question=QUESTION)
    return judge(WORLD.probe, errand, None, Evidence(sent=0, lookups=lookups))


def said(error: str = "", code: str = "", server: IPAddress = RESOLVER, *records: NamedRecord) -> Lookup:
    return Lookup(name=NAME, kind="A", server=server, error=error, code=code, answers=records)


def test_servers_stand_where_names_are_served_and_say_what_they_said() -> None:
    records = (
        NamedRecord(NAME, "CNAME", "a.b", 5),
        NamedRecord("a.b", "A", "10.0.0.1", 5),
        NamedRecord(NAME, "TXT", "x", 5),
    )
    found = name_case(asked(said("", "NOERROR", RESOLVER, *records)), PLAN)
    assert found is not None
    assert homes_of_names(QUESTION, PLAN) == {HOME}
    assert found["servers"] == [{"namespace": HOME, "address": "10.244.0.2", "port": 53, "protocol": "UDP"}]
    (told,) = found["said"]
    assert told["answers"] == [[NAME, "CNAME", "a.b"], ["a.b", "A", "10.0.0.1"]]
    assert (found["server"], found["names"], found["kinds"]) == (str(RESOLVER), list(QUESTION.names), ["A"])
    assert found["due"] == [str(CLUSTER_IP)]


def test_to_a_question_that_nobody_answered_a_server_says_what_it_must() -> None:
    found = name_case(asked(said("timeout")), PLAN)
    assert found is not None
    assert found["said"] == [{"name": NAME, "kind": "A", "code": "NOERROR", "answers": [[NAME, "A", str(CLUSTER_IP)]]}]
    past = name_case(asked(said("timeout"), said("", "NXDOMAIN", SERVER)), PLAN)
    assert past is not None
    assert [each["code"] for each in past["said"]] == ["NXDOMAIN"], "what was heard past the Service goes before"


def test_who_dials_no_name_asks_for_none() -> None:
    assert name_case(judge(WORLD.probe, WORLD.errand, None, Evidence(sent=0)), PLAN) is None
