"""Whatever is wrong in a file or a request that others made, proxylab answers: a result, or a refusal in words.

Never a traceback, exit code 3, or a wait without an end. The inputs are mutants of good ones: scenarios, recorded
probes and steps, dumps of clusters, reports in each form, tables, and requests to the lab's API server.

Every run tries a few of each kind. The thorough rows try ``PROXYLAB_MANGLED`` of each, by default 1,500.
"""

import json
import os
import random
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from caller import Caller
from circumstances import HERE
from conformance_tables import BROKEN
from kubectl_clusters import cloud, k3s
from made_dump import made_dump
from made_steps import torn_connection, unproven_loss
from mangled import mangled_text, mangler
from msgspec.structs import replace
from probed import not_masqueraded
from scenario_cases import frontend, probe, two_nodes

from proxylab.cluster.objects import ClusterEvent, KubeObject, Node, ObjectKey, Pod, Service, ServicePort
from proxylab.cluster.store import Store
from proxylab.control.kubeapi.api import KubeApi, WatchReply
from proxylab.errors import ExitCode
from proxylab.evidence.evidence import Capture
from proxylab.plan.model import PlannedNamespace, Role
from proxylab.plan.topology import draw
from proxylab.report.bundle import bundle
from proxylab.report.step_bundle import step_bundle

ROOT = Path(__file__).resolve().parents[3]
FEW = 20
MANY = int(os.environ.get("PROXYLAB_MANGLED", "1500"))
SECONDS = 10.0
"""The most processor time of an answer."""

SCENARIOS = [file.read_text(encoding="utf-8") for file in sorted((ROOT / "scenarios").rglob("*.lab.yaml"))]
Mutants = Callable[[random.Random], Mapping[str, str]]
"""Makes files, by name."""


def recorded_probe() -> dict[str, bytes]:
    verdict = not_masqueraded()
    plan = draw(two_nodes(probe("p", "sender", frontend())))
    sender = PlannedNamespace(name=verdict.resolved.sender.namespace, role=Role.HOST)
    plan = replace(plan, namespaces=(*plan.namespaces, sender))
    return bundle(verdict, circumstances=HERE, plan=plan, capture=Capture((), 0), nodes={}, scenario=b"")


def recorded_step(chance: random.Random) -> dict[str, bytes]:
    verdict = chance.choice((torn_connection, unproven_loss))()
    plan = draw(two_nodes(probe("p", "sender", frontend())))
    return step_bundle(verdict, circumstances=HERE, plan=plan, nodes={}, scenario=b"")


def of_json(name: str, text: str, **others: str) -> Mutants:
    mutant = mangler(text)
    return lambda chance: {name: mutant(chance), **others}


def probes(chance: random.Random) -> Mapping[str, str]:
    files = {name: data.decode() for name, data in recorded_probe().items() if name in ("case.json", "plan.json")}
    name = chance.choice((*("case.json",) * 4, "plan.json"))
    return {**files, name: mangler(files[name])(chance)}


def steps(chance: random.Random) -> Mapping[str, str]:
    files = {name: data.decode() for name, data in recorded_step(chance).items() if name in ("step.json", "plan.json")}
    return {**files, "step.json": mangler(files["step.json"])(chance)}


def scenarios(chance: random.Random) -> Mapping[str, str]:
    return {"a.lab.yaml": mangled_text(chance.choice(SCENARIOS), chance)}


KINDS: dict[str, tuple[Mutants, tuple[str, ...]]] = {
    "scenarios, checked": (scenarios, ("check", "a.lab.yaml")),
    "scenarios, planned": (scenarios, ("plan", "a.lab.yaml")),
    "scenarios, promised": (scenarios, ("expected", "a.lab.yaml")),
    "scenarios, drawn": (scenarios, ("graph", "a.lab.yaml")),
    "recorded probes": (probes, ("judge", ".", "-v", "--trace")),
    "recorded steps": (steps, ("judge", ".", "-v")),
    "dump of a k3s": (of_json("in.json", k3s().json()), ("import", "in.json")),
    "dump of a cloud": (of_json("in.json", cloud().json()), ("import", "in.json")),
    "dump of thirty Services": (of_json("in.json", json.dumps(yaml.safe_load(made_dump()))), ("import", "in.json")),
    "tables of conformance": (
        of_json("in.json", BROKEN.to_json()),
        ("conformance", "--from", "in.json", "--report", "out.html", "-v"),
    ),
}
EACH = pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.thorough)], ids=["few", "many"])


class Answers:
    """The answers to the mutants of one kind, and what was wrong with them; the number makes a mutant again."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.codes = set[int]()
        self.faults = dict[str, str]()

    def call(self, files: Mapping[str, str], arguments: tuple[str, ...], what: str) -> None:
        """Call the verb on these files."""
        for name, text in files.items():
            (self._caller.folder / name).write_text(text, encoding="utf-8", errors="surrogatepass")
        began = time.process_time()
        code, output, errors = self._caller.type(*arguments)
        taken = time.process_time() - began
        self.codes.add(code)
        if code not in {*ExitCode} - {ExitCode.INTERNAL}:
            where = re.findall(r'File ".*lab/proxylab/(.*), in (.*)', errors)
            said = [line for line in errors.splitlines() if re.match("[A-Za-z_.]+(Error|Exception)", line)]
            self.faults.setdefault(f"code {code}: {where[-1:]} {said[-1:]}", what)
        elif "Traceback" in output + errors or not (code == ExitCode.OK or (output + errors).strip()):
            self.faults.setdefault(f"code {code}: {errors[-300:]!r}", what)
        if found := re.search(r"PosixPath|<[a-z_.]+\.[A-Za-z]+ object at", output + errors):
            self.faults.setdefault(f"{found[0]} in the text", what)
        if taken > SECONDS:
            self.faults.setdefault(f"more than {SECONDS} s", what)


@EACH
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_each_file_gets_an_answer(caller: Caller, kind: str, count: int) -> None:
    mutants, arguments = KINDS[kind]
    answers = Answers(caller)
    for number in range(count):
        answers.call(mutants(random.Random(f"{kind} {number}")), arguments, f"{kind} {number}")
    assert answers.faults == {}
    assert len(answers.codes) > 1 or count < MANY, "mutants of one kind only: some are refused, and some are not"


@EACH
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", ["json", "xml", "html"])
def test_each_report_gets_an_answer(caller: Caller, form: str, count: int) -> None:
    caller.scenario("a.lab.yaml", "holds", "fails")
    if form == "json":
        _, text, _ = caller.type("run", "a.lab.yaml", "-o", "json")
    else:
        caller.type("run", "a.lab.yaml", "--report", f"made.{form}")
        text = (caller.folder / f"made.{form}").read_text(encoding="utf-8")
    mutant = mangler(text) if form == "json" else lambda chance: mangled_text(text, chance)
    answers = Answers(caller)
    for number in range(count):
        files = {f"in.{form}": mutant(random.Random(f"{form} {number}")), f"other.{form}": text}
        asked = ("merge", f"in.{form}", f"other.{form}") if number % 2 else ("merge", f"in.{form}")
        answers.call(files, asked, f"{form} {number}")
    assert answers.faults == {}


PATHS = (
    *(
        "/api/v1/services",
        "/api/v1/namespaces/default/services/echo",
        "/api/v1/nodes/node-a",
        "/api",
        "/apis",
        "/version",
    ),
    *("/apis/discovery.k8s.io/v1/endpointslices", "/apis/events.k8s.io/v1/namespaces/default/events", "/healthz"),
    *("/apis/events.k8s.io/v1/namespaces/default/events/first", "/api/v1/pods", "/openapi/v2", "/version"),
)
QUERIES = (
    *(
        "",
        "watch=true",
        "watch=true&resourceVersion=1",
        "limit=2&continue=x",
        "labelSelector=a%3Db",
        "timeoutSeconds=0",
    ),
    *("fieldSelector=metadata.name%3Decho", "resourceVersion=3&resourceVersionMatch=Exact", "sendInitialEvents=true"),
    "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name&fieldSelector=spec.clusterIP%21%3DNone",
)
EVENT = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "second", "namespace": "default"},
    "regarding": {"kind": "Node", "name": "node-a"},
    "reason": "Starting",
    "note": "begins",
    "type": "Normal",
    "eventTime": "2026-01-02T03:04:05.000000Z",
}
TYPES = ("application/json", "application/merge-patch+json", "application/strategic-merge-patch+json", "text/plain", "")


@EACH
@pytest.mark.timeout(1800)
def test_each_request_to_the_api_gets_an_answer(count: int) -> None:
    store = Store(1000)
    things: tuple[KubeObject, ...] = (
        Service(name="echo", ports=(ServicePort(port=80, target_port=8080),)),
        Node(name="node-a"),
        Pod(name="echo-1", node_name="node-a", addresses=()),
        ClusterEvent(name="first", regarding=ObjectKey("Node", "", "node-a"), reason="Starting"),
    )
    for each in things:
        store.apply(each)
    api = KubeApi(store, "2026-01-02T03:04:05Z")
    body = mangler(json.dumps(EVENT))
    codes, faults = set[int](), dict[str, str]()
    for number in range(count):
        chance = random.Random(f"request {number}")
        method = chance.choice(("GET", "GET", "POST", "POST", "PATCH", "PUT", "DELETE", "HEAD", "x"))
        path, query = chance.choice(PATHS), chance.choice(QUERIES)
        path = mangled_text(path, chance) if chance.random() < 0.5 else path
        query = mangled_text(query, chance) if chance.random() < 0.7 else query
        sent = body(chance).encode("utf-8", "surrogatepass")
        asked = f"{number}: {method} {path} {query} {sent[:500]!r}"
        began = time.process_time()
        try:
            reply = api.answer(method, path, query, sent, chance.choice(TYPES))
            if isinstance(reply, WatchReply):
                reply.open_watch.new_lines(1 << 16)
                continue
        except Exception as error:
            faults.setdefault(f"{type(error).__name__}: {error}", asked)
            continue
        codes.add(reply.code)
        if reply.code >= 500 or time.process_time() - began > SECONDS:
            faults.setdefault(f"{reply.code}: {reply.body!r}", asked)
    assert faults == {}
    assert {200, 404} <= codes, "some are served, and some are refused"
