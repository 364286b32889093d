"""A request through an Ingress that another pod answers, or the controller itself, fails without ``http.backends``."""

import shutil
from collections.abc import Iterator

import pytest
from attacked_lab import Alteration, Told, iptables, nft, program
from shared_sessions import shared_session

from proxylab.client.open_lab import OpenLab
from proxylab.report.failure_text import explain
from proxylab.scenario.load import parse_with_probes
from proxylab.scenario.words import Position

SHOP, OTHER, CONTROLLER = "10.244.0.10", "10.244.1.11", "10.244.1.10"
SERVICE = """\
---
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {type: NodePort, selector: {app: %s}, ports: [{name: http, port: 80, targetPort: %d}]}
"""
WORLD = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: attacked-ingress}
spec:
  nodes: {node-a: {}, node-b: {}}
  hosts: {client: {}}
  pods:
    shop: {nodes: [node-a], labels: {app: shop}, ports: [8080]}
    controller: {nodes: [node-b], labels: {app: nginx}, program: nginx, ports: [80]}
    other: {nodes: [node-b], ports: [8080]}
    agent: {nodes: [node-a], labels: {app: agent}, hostNetwork: true, ports: [9000]}
  probes: []
""" + "".join(SERVICE % each for each in (("nginx", "nginx", 80), ("shop", "shop", 8080), ("empty", "no", 8080)))
WORLD += SERVICE % ("agent", "agent", 9000)
WORLD += """\
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: all}
spec:
  rules:
  - host: shop.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: shop, port: {name: http}}}}
      - {path: /empty, pathType: Prefix, backend: {service: {name: empty, port: {name: http}}}}
      - {path: /agent, pathType: Prefix, backend: {service: {name: agent, port: {name: http}}}}
"""
ANSWERS = "sock = socket.create_server(('', 9999))"
SERVES = (
    "while True:\n conn, _ = sock.accept()\n with contextlib.suppress(OSError):\n"
    "  conn.settimeout(2); conn.recv(4096); conn.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')\n"
    " conn.close()"
)


def led(where: str) -> tuple[Alteration, ...]:
    """A rule on the controller's node that leads its connections to the shop elsewhere."""
    return (
        iptables("node-b", "nat", "PREROUTING", f"-s {CONTROLLER} -d {SHOP} -p tcp -j DNAT --to-destination {where}"),
    )


BY_ITSELF = (
    program("controller", ANSWERS, SERVES),
    nft("controller", "prerouting", -100, "tcp dport 80 counter redirect to :9999", "nat"),
)
"""Another program in the controller's pod answers every request."""

ATTACKS = {
    "a pod that is no endpoint answers": (
        led(f"{OTHER}:8080"),
        "/",
        "http: the request came to other, at 10.244.1.11:8080, which is no endpoint behind shop.example/",
    ),
    "the controller answers by itself": (
        BY_ITSELF,
        "/",
        "http: the controller answered by itself: no tap saw a request come to an endpoint behind shop.example/",
    ),
    "the controller answers by itself where no endpoint is ready": (
        BY_ITSELF,
        "/empty",
        "http: the controller answered by itself",
    ),
}


@pytest.fixture(scope="module")
def lab() -> Iterator[OpenLab]:
    if shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("needs nginx; 'apt-get install nginx-light'")
    scenario = parse_with_probes(WORLD, "attacked-ingress.lab.yaml", [], Position("attacks.py", 1, 1))
    with shared_session() as session:
        yield session.open(scenario, WORLD)


def told(lab: OpenLab, name: str, path: str, status: int = 200) -> Told:
    written = {
        "name": name,
        "from": "client",
        "to": {"service": "shop", "via": "ingress", "host": "shop.example", "path": path},
        "expect": {"http": {"status": status}},
    }
    (probe,) = parse_with_probes(WORLD, "attacked-ingress.lab.yaml", [written], Position("attacks.py", 1, 1)).probes
    lab.add(probe)
    verdict = lab.probe(probe)
    reasons = "; ".join(f"{each.expectation}: {clause}" for each in verdict.verdicts for clause in each.reasons)
    return Told(str(verdict.overall), reasons, "\n".join(explain(verdict)), verdict)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_answer_from_no_endpoint_behind_the_ingress_fails(lab: OpenLab, name: str) -> None:
    altered, path, reason = ATTACKS[name]
    try:
        for each in altered:
            done = lab.execute(each.machine, "sh", "-c", each.change)
            assert done.status == 0, done
        seen = told(lab, name, path)
    finally:
        for each in reversed(altered):
            lab.execute(each.machine, "sh", "-c", each.undo)
    assert (seen.overall, reason in seen.reasons) == ("fail", True), seen


@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/agent", 200), ("/empty", 503)], ids=["a pod", "on a node", "no endpoint"]
)
def test_the_right_endpoint_passes_and_so_does_the_status_that_only_the_controller_gives(
    lab: OpenLab, path: str, status: int
) -> None:
    seen = told(lab, f"an unaltered lab answers {status} behind {path[1:] or 'shop'}", path, status)
    assert seen.overall == "pass", seen
