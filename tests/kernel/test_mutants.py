"""The scenarios can fail: a test removes each rule that they cover from the renderer, and its probes turn red.

That the scenarios pass unchanged, their own pytest items show.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from mutant_record import compare, failures
from mutated_labs import Judged, MutatedLabs, name_of, notices, title
from mutation import Mutation
from sandboxed import ROOT
from thoroughness import sentinels

from proxylab.errors import ExitCode

BODIES = "proxylab.engines.embedded.iptables.service_chains"
FIXED = "proxylab.engines.embedded.iptables.fixed"
FRONTS = "proxylab.engines.embedded.iptables.dispatch_rules"


@dataclass(frozen=True)
class Mutant:
    """A replacement in the renderer, and each probe that notices, with the expectations that then fail.

    A probe notices over each family that it dials. Every other probe of the scenario passes.
    """

    name: str
    module: str
    function: str
    becomes: str
    scenario: str
    fails: dict[str, set[str]]


FROM_A_POD = "scenarios/clusterip/from-a-pod.lab.yaml"
TO_NODE_PORTS = "scenarios/nodeport/traffic-policy-cluster.lab.yaml"
TO_LOCAL_NODE_PORTS = "scenarios/nodeport/traffic-policy-local.lab.yaml"
FROM_SOURCE_RANGES = "scenarios/loadbalancer/source-ranges.lab.yaml"
HEALTH_CHECKED = "scenarios/loadbalancer/health-check-node-port.lab.yaml"
LEFT_ALONE = "scenarios/untranslated/other-ports-and-addresses.lab.yaml"
ASSOCIATIONS = "scenarios/sctp/associations.lab.yaml"
TRACKED = "scenarios/conntrack/entries-of-a-translation.lab.yaml"
STICKY = "scenarios/affinity/client-ip.lab.yaml"
FROM_A_NODE = "scenarios/senders/from-a-node.lab.yaml"
FROM_LOOPBACK = "scenarios/senders/from-loopback.lab.yaml"
IN_EACH_FAMILY = "scenarios/families/single-stack-and-dual-stack.lab.yaml"
SCALED = "scenarios/steps/scaled-to-zero.lab.yaml"
AFTER_ITS_BACKEND = "scenarios/steps/udp-client-outlives-its-backend.lab.yaml"
POLICIES_CHANGE = "scenarios/steps/traffic-policy-and-affinity-change.lab.yaml"
SERVICE_CHANGES = "scenarios/steps/service-edited-and-deleted.lab.yaml"
EXTERNAL_NAME = "scenarios/dns/external-name.lab.yaml"
REPLACED_SERVER = "scenarios/dns/replaced-server.lab.yaml"
PROXY_IS_GONE = "scenarios/steps/proxy-killed-and-restarted.lab.yaml"
RULES_ARE_FLUSHED = "scenarios/steps/rules-are-flushed.lab.yaml"
NODE_MOVES = "scenarios/steps/node-changes-zone.lab.yaml"

MUTANTS = [
    Mutant(
        "no DNAT",
        BODIES,
        "translation",
        "lambda scope, endpoint: ()",
        FROM_A_POD,
        {
            "ClusterIP from a pod preserves the client IP": {"outcome"},
            "ClusterIP from a pod to another node preserves the client IP": {"outcome"},
            "ClusterIP from a pod spreads connections evenly over all endpoints": {"outcome"},
            "ClusterIP from a pod to itself is masqueraded by its node": {"outcome"},
            "ClusterIP from outside is masqueraded by the entry node towards another node": {"outcome"},
            "ClusterIP from outside is masqueraded by the entry node towards its own pod": {"outcome"},
        },
    ),
    Mutant(
        "another port of the pod",
        BODIES,
        "translation",
        "lambda scope, endpoint, whole=module.translation: "
        "tuple(rule.replace(':8081', ':9091') for rule in whole(scope, endpoint))",
        "scenarios/clusterip/several-ports.lab.yaml",
        {"port http reaches only pods with target port http, each at its own number": {"backends", "endpoint"}},
    ),
    Mutant(
        "one port of a pod stands for all of its ports",
        BODIES,
        "translation",
        "lambda scope, endpoint, whole=module.translation: "
        "tuple(rule.replace(':8443', ':8080') for rule in whole(scope, endpoint))",
        "scenarios/clusterip/one-pod-at-two-ports.lab.yaml",
        {"ClusterIP reaches one pod at both ports that its EndpointSlices name": {"backends"}},
    ),
    Mutant(
        "no masquerade",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        FROM_A_POD,
        {
            "ClusterIP from a pod to itself is masqueraded by its node": {"reply", "source"},
            "ClusterIP from outside is masqueraded by the entry node towards another node": {"reply", "source"},
            # The node forwards the reply and translates it back, for any receiver.
            "ClusterIP from outside is masqueraded by the entry node towards its own pod": {"source"},
        },
    ),
    Mutant(
        "no statistic match",
        BODIES,
        "share",
        "lambda index, count: ''",
        FROM_A_POD,
        {"ClusterIP from a pod spreads connections evenly over all endpoints": {"backends", "spread"}},
    ),
    Mutant(
        "no node ports",
        FRONTS,
        "node_port",
        "lambda scope: ()",
        TO_NODE_PORTS,
        {
            "NodePort with policy Cluster is served by a node with an endpoint": {"outcome"},
            "NodePort with policy Cluster is forwarded by a node without endpoint": {"outcome"},
            "NodePort over UDP with policy Cluster is forwarded by a node without endpoint": {"outcome"},
            "NodePort from a pod at its own node is masqueraded": {"outcome"},
            "NodePort from a pod at another node is masqueraded by that node": {"outcome"},
        },
    ),
    Mutant(
        "no drop without a local endpoint",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        TO_LOCAL_NODE_PORTS,
        {"NodePort with externalTrafficPolicy Local drops on a node without endpoint": {"outcome"}},
    ),
    Mutant(
        "no short circuit",
        BODIES,
        "short_circuit",
        "lambda scope: ()",
        TO_LOCAL_NODE_PORTS,
        {
            "NodePort with externalTrafficPolicy Local serves a pod without a local endpoint": {"outcome"},
            "NodePort with externalTrafficPolicy Local masquerades the node itself": {"source"},
        },
    ),
    Mutant(
        "no source ranges",
        BODIES,
        "source_ranges",
        "lambda scope: iter(())",
        FROM_SOURCE_RANGES,
        {"loadBalancerSourceRanges admits an outside host within the range": {"outcome"}},
    ),
    Mutant(
        "no masquerade in either family",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        IN_EACH_FAMILY,
        {
            "ClusterIP from a pod to itself is masqueraded": {"reply", "source"},
            "NodePort from outside is masqueraded by the entry node": {"reply", "source"},
        },
    ),
    Mutant(
        "no translation in OUTPUT",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if rule.chain is not module.names.NAT_OUTPUT)",
        FROM_A_NODE,
        {
            "ClusterIP from a node reaches a pod of the node": {"outcome"},
            "ClusterIP from a node reaches a pod of another node": {"outcome"},
            "ClusterIP from a node translates a crafted UDP datagram": {"outcome"},
            "ClusterIP from a node translates a crafted TCP SYN": {"outcome"},
            "ClusterIP from a host-network pod has the node's address": {"outcome"},
            "NodePort from a node at its own address is served": {"outcome"},
            "NodePort over UDP from a node at its own address is served": {"outcome"},
            "ClusterIP from a node reaches an endpoint that has the node's own address": {"outcome"},
        },
    ),
    Mutant(
        "no rejection",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        FROM_A_NODE,
        {
            "ClusterIP without endpoints rejects a TCP connection from a node": {"outcome"},
            "ClusterIP without endpoints rejects a UDP datagram from a node": {"outcome"},
        },
    ),
    Mutant(
        "health checks that know no endpoint",
        "proxylab.engines.embedded.node_work",
        "local_endpoints",
        "lambda ports, service: 0",
        HEALTH_CHECKED,
        {
            "healthCheckNodePort of a node with two endpoints answers 200 and counts them": {"http"},
            "healthCheckNodePort is answered by the node itself and preserves the client IP": {"http"},
        },
    ),
    Mutant(
        "no memory of clients",
        BODIES,
        "remembered",
        "lambda scope, chain, endpoint, seconds: f'-A {chain}'",
        STICKY,
        {
            "ClientIP affinity sends all connections of a pod to one endpoint": {"spread"},
            "ClientIP affinity with policy Local sends an outside host to one local endpoint": {"spread"},
        },
    ),
    Mutant(
        "no rejection of datagrams",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        TRACKED,
        {"ClusterIP without endpoints leaves no conntrack entry of the rejected datagram": {"conntrack", "outcome"}},
    ),
    Mutant(
        "an external IP with every port of it",
        FRONTS,
        "external_ip",
        "lambda scope, address: [module.append_line(module.names.SERVICES, f'-d {address}', scope.chains.external)]",
        LEFT_ALONE,
        {
            "external IP at another port is not translated": {"outcome"},
            "external IP at another port is not translated over IPv6": {"outcome"},
            "external IP at another port is not translated for a node": {"outcome"},
            "external IP at another port is not translated for a node over IPv6": {"outcome"},
        },
    ),
    Mutant(
        "no rejection of associations",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        ASSOCIATIONS,
        {"ClusterIP over SCTP without endpoints is rejected": {"outcome"}},
    ),
    Mutant(
        "no masquerade of associations",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        ASSOCIATIONS,
        {"ClusterIP over SCTP with internalTrafficPolicy Local serves its node": {"source"}},
    ),
    Mutant(
        "no reconciliation of connection tracking",
        "proxylab.engines.embedded.udp",
        "UdpReconciler.update",
        "lambda self, ports: False",
        AFTER_ITS_BACKEND,
        {
            "another pod replaces the endpoint: "
            "ClusterIP over UDP from the same source port reaches the new endpoint": {
                "backends",
                "conntrack",
                "endpoint",
                "reply",
            },
            "another pod replaces the endpoint: NodePort over UDP from the same source port reaches the new endpoint": {
                "backends",
                "conntrack",
                "endpoint",
                "reply",
                "source",
            },
            "another pod replaces the endpoint: "
            "external IP over UDP from the same source port reaches the new endpoint": {
                "backends",
                "conntrack",
                "endpoint",
                "reply",
                "source",
            },
            "another pod replaces the endpoint: "
            "load balancer IP over UDP from the same source port reaches the new endpoint": {
                "backends",
                "conntrack",
                "endpoint",
                "reply",
                "source",
            },
            "no endpoint is ready: ClusterIP over UDP from the same source port is rejected": {"outcome"},
        },
    ),
    Mutant(
        "no zone of the node",
        "proxylab.engines.embedded.node",
        "ZONE_LABEL",
        "'nowhere'",
        NODE_MOVES,
        {
            "PreferClose keeps a pod in zone east": {"backends"},
            "the node's zone label changes from east to west: "
            "PreferClose keeps the pod in zone west after the node's zone changed": {"backends"},
        },
    ),
    Mutant(
        "no rejection without endpoints",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        SCALED,
        {
            "the Deployment is scaled to zero: ClusterIP over TCP is rejected after scaling to zero": {"outcome"},
            "the Deployment is scaled to zero: ClusterIP over UDP is rejected after scaling to zero": {"outcome"},
        },
    ),
    Mutant(
        "no drop when the policy becomes Local",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        POLICIES_CHANGE,
        {
            "externalTrafficPolicy changes to Local: "
            "NodePort drops on a node without endpoint after the policy changes to Local": {"outcome"}
        },
    ),
    Mutant(
        "no node ports for a Service that gets some",
        FRONTS,
        "node_port",
        "lambda scope: ()",
        SERVICE_CHANGES,
        {"the type changes to NodePort: NodePort is served after the type changes to NodePort": {"outcome"}},
    ),
    Mutant(
        "no DNAT to the name server",
        BODIES,
        "translation",
        "lambda scope, endpoint: ()",
        EXTERNAL_NAME,
        {"ExternalName of a cluster Service leads to the endpoints of that Service": {"name"}},
    ),
    Mutant(
        "no reconciliation when the name server is replaced",
        "proxylab.engines.embedded.udp",
        "UdpReconciler.update",
        "lambda self, ports: False",
        REPLACED_SERVER,
        {
            "another pod replaces the name server: "
            "kube-dns over UDP from the same source port reaches the new name server": {
                "backends",
                "conntrack",
                "endpoint",
                "reply",
            }
        },
    ),
]


def test_rules_that_no_engine_restores_fail_the_step_that_waits_for_them(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import proxylab.engines.embedded.sync as module\n"
        "async def trusting(self, now):\n"
        "    self._look_at = now + self._periods.sync\n"
        "    return False\n"
        "module.EmbeddedEngine._is_flushed = trusting\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "run", "--no-bundles", "-o", "json", str(ROOT / RULES_ARE_FLUSHED)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "lab")])},
    )
    (case,) = json.loads(done.stdout)["scenarios"]
    assert [probe["judgement"] for probe in case["probes"]] == ["pass", "pass"]  # over each family
    waited = "step 'the iptables rules of the node are flushed[iptables]': gave up waiting: the rules of the engine"
    assert f"{waited} are present" in str(case["fault"])
    assert done.returncode == ExitCode.FAILED


# Which expectations fail: one defect of each part of the renderer in every run.
@pytest.mark.parametrize("mutant", sentinels(MUTANTS, lambda each: each.module, lambda each: each.name))
def test_just_what_a_rule_is_for_turns_red_without_it(mutant: Mutant, mutated_labs: MutatedLabs) -> None:
    mutation = Mutation(mutant.module, mutant.function, mutant.becomes)
    judged: list[Judged] = []
    for _, verdicts in mutated_labs.run([ROOT / mutant.scenario], mutation):
        due = {title(each): mutant.fails[name_of(each)] for each in verdicts if name_of(each) in mutant.fails}
        assert notices(verdicts) == due
        judged += verdicts
    file = mutant.scenario.removeprefix("scenarios/").removesuffix(".lab.yaml")
    compare(mutant.name, "embedded/iptables", {file: failures(judged)})
