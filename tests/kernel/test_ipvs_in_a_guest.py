"""Mode ipvs in a guest's kernel: schedulers by counted connections, settings, ending destinations, and what is left."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from guests import OWN
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.load import parse_scenario

pytestmark = [OWN, pytest.mark.timeout(300)]

PODS, FLOWS = 3, 30
COUNTED = re.compile(r"echo-\d (\d+)")
NODE = "node-a"

SCENARIO = f"""
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: balanced, description: IPVS balances it over IPv4 alone.}}
spec:
  nodes: {{node-a: {{}}, node-b: {{}}}}
  pods:
    echo: {{replicas: {PODS}, nodes: [node-b], labels: {{app: echo}}, ports: [8080]}}
    client: {{nodes: [node-a]}}
  hosts: {{crowd: {{addresses: {FLOWS}}}}}
  probes:
  - name: ClusterIP from one client
    from: client
    to: {{service: echo, via: clusterIP}}
    send: {{as: packet, flows: {FLOWS}}}
    expect: {{outcome: delivered, source: preserved, backends: [echo-1, echo-2, echo-3]}}
  - name: ClusterIP from many clients
    from: {{name: crowd, address: all}}
    to: {{service: echo, via: clusterIP, node: node-a}}
    send: {{as: packet, flows: {FLOWS}}}
    expect: {{outcome: delivered, source: {{node: node-a, device: uplink}}, backends: [echo-1, echo-2, echo-3]}}
  steps:
  - name: the first endpoint is unready
    change: {{pods: {{echo-1: {{ready: false}}}}}}
  - name: the proxy changes to mode nftables
    change: {{engines: {{node-a: nftables}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec: {{clusterIP: 10.96.0.50, selector: {{app: echo}}, ports: [{{port: 80, targetPort: 8080}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: closed}}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [192.0.2.0/24]
  selector: {{app: echo}}
  ports: [{{port: 80, targetPort: 8080}}]
status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.77}}]}}}}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clusterCIDR: NETWORKS
ipvs: {{OPTIONS}}
"""

IN_TURN = {"rr", "wrr", "lc", "wlc", "sed", "nq"}
"""With equal weights, and connections that stay open, all of these divide connections equally."""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with shared_session(EngineChoice("embedded/ipvs", kernel="uml")) as opened:
        yield opened


def opened(session: Session, options: str, networks: str = "10.244.0.0/16") -> closing[OpenLab]:
    text = SCENARIO.replace("{OPTIONS}", options).replace("NETWORKS", networks)
    return closing(session.open(parse_scenario(text, "f")))


def shares(lab: OpenLab) -> list[list[int]]:
    """How many connections each endpoint got, of one client and of many; the most first."""
    found = []
    for probe in lab.scenario.probes:
        verdicts = {each.expectation: each.observed for each in lab.probe(probe).verdicts}
        assert "delivered" in verdicts["outcome"], verdicts
        found.append(sorted(map(int, COUNTED.findall(verdicts["backends"])), reverse=True))
    return found


def test_the_kernel_gives_back_what_was_written(session: Session) -> None:
    with opened(session, "{}") as lab:
        script = str(ROOT / "tests/kernel/ipvs_round_trip.py")
        done = lab.execute("client", "env", f"PYTHONPATH={ROOT / 'lab'}", sys.executable, script)
    assert (done.stdout, done.stderr) == ("[]\n", "")


# Round robin shows that the setting reaches the kernel; the others have the same way there.
@pytest.mark.parametrize(
    "scheduler", [pytest.param(each, marks=[] if each == "rr" else [pytest.mark.thorough]) for each in sorted(IN_TURN)]
)
def test_schedulers_that_take_turns_or_count_divide_connections_equally(session: Session, scheduler: str) -> None:
    with opened(session, f"{{scheduler: {scheduler}}}") as lab:
        assert f"-s {scheduler}" in lab.rules_of(NODE)
        assert shares(lab) == [[FLOWS // PODS] * PODS] * 2


@pytest.mark.thorough
def test_scheduler_sh_keeps_a_client_at_one_endpoint(session: Session) -> None:
    with opened(session, "{scheduler: sh}") as lab:
        one, many = shares(lab)
    assert one == [FLOWS]
    assert len(many) > 1


@pytest.mark.thorough
def test_scheduler_dh_sends_all_clients_to_one_endpoint(session: Session) -> None:
    with opened(session, "{scheduler: dh}") as lab:
        assert shares(lab) == [[FLOWS], [FLOWS]]


@pytest.mark.thorough
def test_scheduler_lblc_sends_clients_to_one_endpoint_until_that_has_too_many(session: Session) -> None:
    with opened(session, "{scheduler: lblc}") as lab:
        for most, *_ in shares(lab):
            assert most > FLOWS // 2


@pytest.mark.thorough
def test_scheduler_mh_hashes_the_source_port_as_well(session: Session) -> None:
    with opened(session, "{scheduler: mh}") as lab:
        assert "-s mh -b flag-2" in lab.rules_of(NODE)
        one, many = shares(lab)
    assert len(one) > 1
    assert len(many) > 1


def test_settings_reach_the_kernel(session: Session) -> None:
    wanted = {
        "net.ipv4.vs.conntrack": "1",
        "net.ipv4.vs.expire_nodest_conn": "1",
        "net.ipv4.vs.expire_quiescent_template": "1",
        "net.ipv4.conf.all.arp_ignore": "1",
        "net.ipv4.conf.all.arp_announce": "2",
    }
    with opened(session, "{strictARP: true, tcpTimeout: 100s, excludeCIDRs: [192.0.2.0/24]}") as lab:
        paths = [f"/proc/sys/{name.replace('.', '/')}" for name in wanted]
        assert lab.execute(NODE, "cat", *paths).stdout.split() == [*wanted.values()]
        link = lab.execute(NODE, "ip", "-o", "link", "show", "kube-ipvs0").stdout
        assert "NOARP" in link
        assert "UP" not in link.partition(">")[0]


def test_an_endpoint_with_connections_ends_with_weight_0_and_mode_nftables_leaves_nothing_of_ipvs(
    session: Session,
) -> None:
    with opened(session, "{}") as lab:
        shares(lab)
        unready, changed = lab.scenario.steps
        lab.conclude(unready)
        lines = [line for line in lab.rules_of(NODE).splitlines() if line.startswith("-a -t 10.96.0.50:80 ")]
        weights = [line.rpartition(" ")[2] for line in lines]
        assert sorted(weights) == ["0", "1", "1"]
        lab.conclude(changed)
        assert "KUBE-" not in lab.execute(NODE, "iptables-save").stdout.replace("KUBE-FIREWALL", "")
        assert lab.execute(NODE, "ipset", "list", "-name").stdout == ""
        assert "TCP" not in lab.execute(NODE, "cat", "/proc/net/ip_vs").stdout
        assert "kube-ipvs0" not in lab.execute(NODE, "ip", "-o", "link").stdout


def dialled(lab: OpenLab, address: str) -> Any:
    script = str(ROOT / "tests/kernel/node_client.py")
    done = lab.execute(NODE, "env", f"PYTHONPATH={ROOT / 'lab'}", sys.executable, script, address, "80")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


# Each of the two has a rule of its own (kube-proxy's localDetector).
@pytest.mark.parametrize("networks", ["10.244.0.0/16", '""'], ids=["with a detector", "without a detector"])
def test_a_node_dials_a_cluster_ip_from_that_address_and_is_masqueraded(session: Session, networks: str) -> None:
    """The node owns the address that it dials, so the kernel takes it for the source as well (kubernetes#63241)."""
    with opened(session, "{}", networks) as lab:
        assert dialled(lab, "10.96.0.50") == {"source": "10.96.0.50", "answers": ["172.18.0.2"]}


def test_source_ranges_close_a_load_balancer_ip_to_a_node_that_dials_from_it(session: Session) -> None:
    with opened(session, "{}") as lab:
        assert dialled(lab, "203.0.113.77") == {"error": "timeout"}
