"""The scenarios can fail: each rule that they are about is taken out of the renderer, and what it is for turns red.

That they hold as they stand, their own items show.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from mutated_labs import MutatedLabs, name_of, notices, title
from mutation import Mutation
from sandboxed import ROOT

from lab.errors import ExitCode

BODIES = "lab.engines.embedded.iptables.bodies"
FIXED = "lab.engines.embedded.iptables.fixed"
FRONTS = "lab.engines.embedded.iptables.fronts"


@dataclass(frozen=True)
class Mutant:
    """What is replaced by what in the renderer, and each probe that notices, with the expectations that then fail.

    It notices over each family that it dials. Every other probe of the scenario holds: it does not concern the rule.
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
LEFT_ALONE = "scenarios/untranslated/headed-elsewhere.lab.yaml"
ASSOCIATIONS = "scenarios/sctp/associations.lab.yaml"
TRACKED = "scenarios/conntrack/entries-of-a-translation.lab.yaml"
STICKY = "scenarios/affinity/client-ip.lab.yaml"
FROM_A_NODE = "scenarios/senders/from-a-node.lab.yaml"
FROM_LOOPBACK = "scenarios/senders/from-loopback.lab.yaml"
IN_EACH_FAMILY = "scenarios/families/each-alone.lab.yaml"
SCALED = "scenarios/steps/scaled-to-nothing.lab.yaml"
AFTER_ITS_BACKEND = "scenarios/steps/a-datagram-after-its-backend.lab.yaml"
POLICIES_CHANGE = "scenarios/steps/policies-change.lab.yaml"
SERVICE_CHANGES = "scenarios/steps/a-service-changes.lab.yaml"
EXTERNAL_NAME = "scenarios/dns/external-name.lab.yaml"
REPLACED_SERVER = "scenarios/dns/replaced-server.lab.yaml"
PROXY_IS_GONE = "scenarios/steps/the-proxy-is-gone.lab.yaml"
RULES_ARE_FLUSHED = "scenarios/steps/rules-are-flushed.lab.yaml"
NODE_MOVES = "scenarios/steps/a-node-moves.lab.yaml"

MUTANTS = [
    Mutant(
        "no DNAT",
        BODIES,
        "translation",
        "lambda scope, endpoint: ()",
        FROM_A_POD,
        {
            "a backend sees the pod that dialled": {"outcome"},
            "a backend on another node sees the pod that dialled": {"outcome"},
            "every backend gets its share": {"outcome"},
            "a pod that reaches itself is masqueraded by its node": {"outcome"},
            "an outside host is masqueraded where it enters, on the way to another node": {"outcome"},
            "an outside host is masqueraded where it enters, on the way to a pod there": {"outcome"},
        },
    ),
    Mutant(
        "another port of the pod",
        BODIES,
        "translation",
        "lambda scope, endpoint, whole=module.translation: "
        "tuple(rule.replace(':8081', ':9091') for rule in whole(scope, endpoint))",
        "scenarios/clusterip/several-ports.lab.yaml",
        {"the web is served by the pods that have it, each on its own number": {"port"}},
    ),
    Mutant(
        "no masquerade",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        FROM_A_POD,
        {
            "a pod that reaches itself is masqueraded by its node": {"reply", "source"},
            "an outside host is masqueraded where it enters, on the way to another node": {"reply", "source"},
            # The node forwards the reply, and translates it back, whoever it is to.
            "an outside host is masqueraded where it enters, on the way to a pod there": {"source"},
        },
    ),
    Mutant(
        "no statistic match",
        BODIES,
        "share",
        "lambda index, count: ''",
        FROM_A_POD,
        {"every backend gets its share": {"backends", "spread"}},
    ),
    Mutant(
        "no node ports",
        FRONTS,
        "node_port",
        "lambda scope: ()",
        TO_NODE_PORTS,
        {
            "a node with an endpoint answers": {"outcome"},
            "a node without endpoint passes it on": {"outcome"},
            "a datagram is passed on likewise": {"outcome"},
            "a pod dials its own node": {"outcome"},
            "a pod dials another node": {"outcome"},
        },
    ),
    Mutant(
        "no drop without a local endpoint",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        TO_LOCAL_NODE_PORTS,
        {"a node without endpoint drops": {"outcome"}},
    ),
    Mutant(
        "no short circuit",
        BODIES,
        "short_circuit",
        "lambda scope: ()",
        TO_LOCAL_NODE_PORTS,
        {"a pod on a node without endpoint is short-circuited and keeps its address": {"outcome"}},
    ),
    Mutant(
        "no source ranges",
        BODIES,
        "source_ranges",
        "lambda scope: iter(())",
        FROM_SOURCE_RANGES,
        {"a host of the range is served by way of the balancer": {"outcome"}},
    ),
    Mutant(
        "no masquerade in either family",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        IN_EACH_FAMILY,
        {
            "a pod that reaches itself is masqueraded": {"reply", "source"},
            "a stranger is masqueraded where it enters": {"reply", "source"},
        },
    ),
    Mutant(
        "no translation in OUTPUT",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if rule.chain is not module.names.NAT_OUTPUT)",
        FROM_A_NODE,
        {
            "a node reaches a pod of its own": {"outcome"},
            "a node reaches a pod elsewhere": {"outcome"},
            "a node's crafted datagram is translated as well": {"outcome"},
            "a node's crafted SYN is translated as well": {"outcome"},
            "a host-network pod dials as its node": {"outcome"},
            "a node dials its own node port": {"outcome"},
            "a node reaches a backend that shares its address": {"outcome"},
        },
    ),
    Mutant(
        "no rejection",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        FROM_A_NODE,
        {
            "a node is told that nobody is there": {"outcome"},
            "a node's datagram is turned away as well": {"outcome"},
        },
    ),
    Mutant(
        "health checks that know no endpoint",
        "lab.engines.embedded.answers",
        "local_endpoints",
        "lambda ports, service: 0",
        HEALTH_CHECKED,
        {
            "a node with endpoints is healthy and says how many it has": {"http"},
            "the node itself is asked, and sees who asks": {"http"},
        },
    ),
    Mutant(
        "no memory of clients",
        BODIES,
        "remembered",
        "lambda scope, chain, endpoint, seconds: f'-A {chain}'",
        STICKY,
        {
            "a pod's connections go to one backend": {"spread"},
            "an outside host's connections go to one backend of the node": {"spread"},
        },
    ),
    Mutant(
        "no rejection of datagrams",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        TRACKED,
        {"what was rejected is not remembered": {"conntrack", "outcome"}},
    ),
    Mutant(
        "an external IP with every port of it",
        FRONTS,
        "external_ip",
        "lambda scope, address: [module.write(module.names.SERVICES, f'-d {address}', scope.chains.external)]",
        LEFT_ALONE,
        {
            "a port that the Service does not have is left alone": {"outcome"},
            "so is it over IPv6": {"outcome"},
            "what a node itself sends there is left alone as well": {"outcome"},
            "what a node sends there over IPv6, too": {"outcome"},
        },
    ),
    Mutant(
        "no rejection of associations",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        ASSOCIATIONS,
        {"without endpoint it is rejected": {"outcome"}},
    ),
    Mutant(
        "no masquerade of associations",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        ASSOCIATIONS,
        {"a node reaches it as well": {"source"}},
    ),
    Mutant(
        "no reconciliation of connection tracking",
        "lab.engines.embedded.udp",
        "UdpReconciler.update",
        "lambda self, ports: False",
        AFTER_ITS_BACKEND,
        {
            "another pod takes its place: the pod's next datagram reaches the new one": {
                "backends",
                "conntrack",
                "reply",
            },
            "another pod takes its place: so does the outside host's": {"backends", "conntrack", "reply", "source"},
            "nobody is ready any more: the pod's next datagram is turned away": {"outcome"},
        },
    ),
    Mutant(
        "no zone of the node",
        "lab.engines.embedded.node",
        "ZONE_LABEL",
        "'nowhere'",
        NODE_MOVES,
        {"its pods stay in the east": {"backends"}, "it is in the west: its pods stay there": {"backends"}},
    ),
    Mutant(
        "no rejection without endpoints",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        SCALED,
        {
            "scaled to nothing: a connection is turned away": {"outcome"},
            "scaled to nothing: a datagram is turned away": {"outcome"},
        },
    ),
    Mutant(
        "no drop when the policy becomes Local",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        POLICIES_CHANGE,
        {"only endpoints of the node: a node without endpoint drops": {"outcome"}},
    ),
    Mutant(
        "no node ports for a Service that gets some",
        FRONTS,
        "node_port",
        "lambda scope: ()",
        SERVICE_CHANGES,
        {"it gets a node port: the node port is served": {"outcome"}},
    ),
    Mutant(
        "no DNAT to the name server",
        BODIES,
        "translation",
        "lambda scope, endpoint: ()",
        EXTERNAL_NAME,
        {"the alias leads to the Service that it stands for": {"name"}},
    ),
    Mutant(
        "no reconciliation when the name server is replaced",
        "lab.engines.embedded.udp",
        "UdpReconciler.update",
        "lambda self, ports: False",
        REPLACED_SERVER,
        {
            "another server takes its place: the client's next datagram reaches it": {
                "backends",
                "conntrack",
                "reply",
            }
        },
    ),
]


def test_rules_that_nobody_puts_back_fail_the_step_that_waits_for_them(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import lab.engines.embedded.sync as module\n"
        "async def trusting(self, now):\n"
        "    self._look_at = now + self._periods.sync\n"
        "    return False\n"
        "module.EmbeddedEngine._is_flushed = trusting\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "lab", "run", "--no-bundles", "-o", "json", str(ROOT / RULES_ARE_FLUSHED)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
    )
    (case,) = json.loads(done.stdout)["scenarios"]
    assert [probe["judgement"] for probe in case["probes"]] == ["pass", "pass"]  # over each family
    assert "step 'its rules are flushed[iptables]': gave up waiting: the rules of the engine are present" in str(
        case["fault"]
    )
    assert done.returncode == ExitCode.FAILED


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_just_what_a_rule_is_for_turns_red_without_it(mutant: Mutant, mutated_labs: MutatedLabs) -> None:
    mutation = Mutation(mutant.module, mutant.function, mutant.becomes)
    for _, verdicts in mutated_labs.run([ROOT / mutant.scenario], mutation):
        due = {title(each): mutant.fails[name_of(each)] for each in verdicts if name_of(each) in mutant.fails}
        assert notices(verdicts) == due
