"""A real nginx sends requests where the rules of Kubernetes say, and its pods fail in words."""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.cluster.http_routes import choose, routing
from proxylab.cluster.objects import EndpointSlice, Service, Unstructured
from proxylab.errors import CapabilityError, ProgramError
from proxylab.plan.assembly import assemble
from proxylab.report.failure_text import explain
from proxylab.scenario.load import parse_scenario

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: many-paths}
spec:
  nodes: {node-a: {}}
  hosts: {client: {}}
  pods:
    controller: {labels: {app: nginx}, program: nginx, ports: [80]}
    one: {labels: {app: one}, ports: [8080]}
    two: {labels: {app: two}, ports: [8080]}
    three: {labels: {app: three}, ports: [8080]}
  probes: [%s]
"""
SERVICE = """
---
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {%sselector: {app: %s}, ports: [{name: http, port: 80, targetPort: %d}]}
"""
INGRESS = """
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: all}
spec: {rules: [%s]}
"""
PATH = "{path: %s, pathType: %s, backend: {service: {name: %s, port: {name: http}}}}"
PROBE = (
    "{name: request %d, from: client, to: {service: one, via: ingress, host: %s, path: %s}, "
    "expect: {http: {status: 200}}}"
)
HOSTS = ("a.example", "*.example", "b.a.example")
ASKED = ("a.example", "x.example", "b.a.example", "x.y.example")
SERVICES = ("one", "two", "three")


def path(chance: random.Random) -> str:
    parts = chance.choices(["a", "b", "ab"], k=chance.randrange(3))
    return "/" + "/".join(parts) + ("/" if parts and chance.random() < 0.3 else "")


def many_paths(seed: int, requests: int) -> str:
    chance = random.Random(seed)
    rules = []
    for host in HOSTS:
        kinds = ("Prefix", "Exact", "ImplementationSpecific")
        paths = [PATH % (path(chance), chance.choice(kinds), chance.choice(SERVICES)) for _ in range(8)]
        rules.append(f'{{host: "{host}", http: {{paths: [{", ".join(paths)}]}}}}')
    probes = [PROBE % (number, chance.choice(ASKED), path(chance)) for number in range(requests)]
    services = [SERVICE % (name, "", name, 8080) for name in SERVICES]
    nginx = SERVICE % ("nginx", "type: NodePort, ", "nginx", 80)
    return SCENARIO % ", ".join(probes) + nginx + "".join(services) + INGRESS % ", ".join(rules)


@pytest.mark.parametrize("seed", [1, *(pytest.param(each, marks=pytest.mark.thorough) for each in range(2, 8))])
def test_nginx_sends_each_request_where_the_paths_say(seed: int) -> None:
    scenario = parse_scenario(many_paths(seed, 24 if seed == 1 else 40), "many-paths.lab.yaml")
    assembly = assemble(scenario)
    kinds = {kind: [each for each in assembly.objects if isinstance(each, kind)] for kind in (Unstructured, Service)}
    slices = [each for each in assembly.objects if isinstance(each, EndpointSlice)]
    routes = routing(kinds[Unstructured], kinds[Service], slices, [4])
    pods = {str(addresses[0]): name for name, addresses in assembly.addresses.items() if addresses}
    seen, due = [], []
    with shared_session() as session:
        try:
            lab = session.open(scenario)
        except CapabilityError as lacking:
            pytest.skip(str(lacking))
        for probe in scenario.probes:
            (report,) = lab.probe(probe).evidence.http
            target = probe.target
            servers = choose(routes, target.host, target.path)
            due.append((target.host, target.path, 200 if servers else 404, pods[servers[0].address] if servers else ""))
            seen.append((target.host, target.path, report.status, report.backend))
    assert seen == due
    assert len({backend for *_, backend in seen}) == 4  # each Service, and none


def test_a_controller_that_cannot_listen_fails_in_its_own_words(tmp_path: Path) -> None:
    text = many_paths(1, 1).replace("program: nginx, ports: [80]", "hostNetwork: true, program: nginx, ports: [10256]")
    scenario = parse_scenario(text.replace("targetPort: 80}", "targetPort: 10256}"), "taken.lab.yaml")
    with shared_session() as session, pytest.raises((ProgramError, CapabilityError)) as failed:
        session.open(scenario)
    if isinstance(failed.value, ProgramError):
        assert "nginx in pod controller: ended with exit status" in str(failed.value)
        assert "Address already in use" in str(failed.value)
    else:
        pytest.skip(str(failed.value))


ASK = (
    "import urllib.request as asking; "
    "request = asking.Request('http://127.0.0.1/b', headers={'Host': 'edited.example'}); "
    "print(asking.urlopen(request).read().decode())"
)


@pytest.mark.skipif(
    shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None,
    reason="needs nginx; 'apt-get install nginx-light'",
)
def test_nginx_follows_an_ingress_that_apply_brings(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "edited.lab.yaml"
    rule = f"{{host: edited.example, http: {{paths: [{PATH}]}}}}"
    plain = SCENARIO % "" + SERVICE % ("nginx", "type: NodePort, ", "nginx", 80)
    plain += "".join(SERVICE % (name, "", name, 8080) for name in SERVICES)
    file.write_text(plain + INGRESS % (rule % ("/", "Prefix", "one")))
    assert cli.type("up", str(file)).status == 0
    ask = ("exec", "controller", "--", sys.executable, "-c", ASK)
    assert '"pod": "one"' in cli.type(*ask).output
    file.write_text(plain + INGRESS % (rule % ("/b", "Exact", "two")))
    done = cli.type("apply", "-f", str(file))
    assert "~ Ingress.networking.k8s.io default/all: spec.rules[0].http.paths[0].path: / -> /b" in done.output
    assert '"pod": "two"' in cli.type(*ask).output


ONE_FAMILY = {
    "  matrix: {families: [[IPv4], [IPv6]]}\n": "",
    "families: [IPv4, IPv6]": "families: [IPv4]",
    ', "2001:db8:1::/124"': "",
    "forwardedFor: node-a": "forwardedFor: client",
}
SILENCED = (
    "sed -i /X-Forwarded-For/d /run/nginx.conf; before=$(cat /proc/$(cat /run/nginx.pid)/task/*/children); "
    'kill -HUP $(cat /run/nginx.pid); timeout 20 sh -c "while kill -0 $before; do :; done" 2>&-'
)
SAW = (
    "controller saw the connection come from 172.18.0.2, and wrote that into X-Forwarded-For. The Service's "
    "externalTrafficPolicy is Cluster, so node-a masquerades; Local keeps the client's address, and uses only"
)
SENT = (
    "controller sent shop the request without X-Forwarded-For: an Ingress controller that ends HTTP writes it, and no"
)


@pytest.mark.parametrize(("silenced", "why"), [(False, SAW), (True, SENT)], ids=["a node's", "missing"])
def test_why_says_what_became_of_the_clients_address(silenced: bool, why: str) -> None:
    """A new user expects the client's address; the header has a node's, or the controller's configuration lacks it."""
    text = (ROOT / "scenarios/ingress/client-address.lab.yaml").read_text()
    for was, becomes in ONE_FAMILY.items():
        assert was in text
        text = text.replace(was, becomes)
    scenario = parse_scenario(text, "header.lab.yaml")
    with shared_session() as session:
        try:
            lab = session.open(scenario)
        except CapabilityError as lacking:
            pytest.skip(str(lacking))
        if silenced:
            assert lab.execute("controller", "sh", "-c", SILENCED).status == 0
        shown = " ".join("\n".join(explain(lab.probe(scenario.probes[0]))).split())
    assert f"why: {why}" in shown
