"""Scenarios that need what many kernels lack can fail, too: in a guest, each turns red without a part of the engine.

A guest reads each of the machine's files once, so each mutation gets a guest of its own.
"""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from breakages import BODIES, UDP
from guests import OWN
from mutant_record import compare, failures
from mutated_labs import MutatedLabs
from mutation import Mutation
from sandboxed import ROOT

__all__ = ["IN_A_GUEST"]


@dataclass(frozen=True)
class InAGuest:
    """A mutation, and the probes and steps of the scenario that do not pass any more."""

    scenario: str
    mutation: Mutation
    red: frozenset[str]
    engine: str = "embedded/iptables"
    name: str = ""

    @property
    def named(self) -> str:
        """As the record names the mutant."""
        return self.name or f"no {self.mutation.module.rpartition('.')[2]}.{self.mutation.attribute}"

    def __str__(self) -> str:
        return f"{self.scenario} without {self.mutation.attribute}"


IPVS = "proxylab.engines.embedded.ipvs"
MAY_REUSE_TOO_SOON = {"net.ipv4.vs.conntrack": "1", "net.ipv4.vs.conn_reuse_mode": "0", "net.ipv4.ip_forward": "1"}

GIVEN_AWAY = "both Services are given to another proxy"
NO_DNAT = Mutation(BODIES, "translation", "lambda scope, endpoint: ()")

IN_A_GUEST = [
    InAGuest(
        "sctp/connections",
        NO_DNAT,
        frozenset(
            {
                "ClusterIP over SCTP answers on associations from a pod",
                "ClusterIP over SCTP answers on an association of a pod to itself",
                "NodePort over SCTP answers on associations from outside",
                "NodePort over SCTP with policy Local answers and preserves the client IP",
                "ClusterIP over SCTP to a port without a listener is refused by an ABORT",
                "another pod becomes ready and the association stays with its pod",
                (
                    "another pod becomes ready and the association stays with its pod: "
                    "ClusterIP over SCTP reaches the new pod by new associations"
                ),
            }
        ),
    ),
    InAGuest(
        "links/lossy-link",
        Mutation(BODIES, "share", "lambda index, count: ''"),
        frozenset({"ClusterIP over a lossy link spreads the datagrams that arrive evenly"}),
    ),
    InAGuest(
        "links/link-begins-to-lose",
        Mutation(UDP, "UdpReconciler.update", "lambda self, ports: False"),
        frozenset(
            {
                "another pod replaces the server, and the stream follows over the lossy link",
                "the link is mended and nothing is lost any more",
            }
        ),
    ),
    InAGuest(
        "links/link-begins-to-delay",
        NO_DNAT,
        frozenset(
            {
                "the other node's link delays packets, and all get their answers",
                (
                    "the other node's link delays packets, and all get their answers: "
                    "ClusterIP over a slow link answers on TCP connections"
                ),
                (
                    "the other node's link delays packets, and all get their answers: "
                    "ClusterIP over a slow link answers datagrams"
                ),
                "the other node's link copies packets, and each copy has its answer",
                (
                    "the other node's link copies packets, and each copy has its answer: "
                    "ClusterIP over a link that copies datagrams sends the copies to one endpoint"
                ),
                "the link is mended and answers come as before",
            }
        ),
    ),
    InAGuest(
        "ipvs/daemon-behind-service-addresses",
        Mutation(f"{IPVS}.rules", "_guards", "lambda family: ()"),
        frozenset(
            {
                "ClusterIP at the port of a node's daemon does not reach the daemon",
                "IPv6 ClusterIP at the port of a node's daemon does not reach the daemon",
                "external IP at the port of a node's daemon does not reach the daemon",
            }
        ),
        "embedded/ipvs",
    ),
    InAGuest(
        "ipvs/feature-gate-off",
        Mutation(
            f"{IPVS}.tables",
            "_Planning.tables",
            "lambda self, whole=module._Planning.tables, replace=__import__('msgspec').structs.replace:"
            " replace(whole(self), servers={})",
        ),
        frozenset({"ClusterIP is served in mode ipvs while its feature gate is on"}),
        "embedded/ipvs",
        "no virtual servers",
    ),
    InAGuest(
        "ipvs/node-port-number-elsewhere",
        Mutation(f"{IPVS}.rules", "TO_LOCAL", "''"),
        frozenset({"host outside at the number of a NodePort gets a pod's packets untouched"}),
        "embedded/ipvs",
    ),
    InAGuest(
        "ipvs/port-published-by-docker",
        Mutation(
            f"{IPVS}.rules",
            "_rules",
            "lambda *of, whole=module._rules: "
            "(r for r in whole(*of) if (r.chain, r.target) != (module.names.SERVICES, 'ACCEPT'))",
        ),
        frozenset(
            {
                "ClusterIP at a port that Docker publishes reaches the Service",
                "ClusterIP at a port that Docker publishes reaches the Service from the node",
                "external IP at a port that Docker publishes reaches the Service",
                "external IP at a port that Docker publishes reaches the Service from the node",
                "external IP with policy Local at a published port reaches the Service",
                "external IP with policy Local at a published port is served to the node",
                "load balancer IP at a port that Docker publishes reaches the Service",
                "load balancer IP with policy Local at a published port reaches the Service",
            }
        ),
        "embedded/ipvs",
    ),
    InAGuest(
        "ipvs/program-bound-to-a-service-address",
        Mutation(
            f"{IPVS}.rules",
            "_guards",
            "lambda family, whole=module._guards: (module.Rule(r.chain, tuple("
            "each.replace('-m conntrack --ctstate NEW ', '') for each in r.matches), r.target) for r in whole(family))",
        ),
        frozenset(
            {
                "pod IP from a node's cluster IP is answered at a port that no Service has",
                "pod IP over IPv6 from a node's cluster IP is answered at such a port",
            }
        ),
        "embedded/ipvs",
        "answers to addresses of Services are rejected",
    ),
    InAGuest(
        "ipvs/source-port-reused-while-an-endpoint-leaves",
        Mutation(f"{IPVS}.node", "_SYSCTLS", repr(MAY_REUSE_TOO_SOON)),
        frozenset(
            {
                (
                    "the endpoint becomes unready, and another one ready: "
                    "ClusterIP from the same source port reaches the endpoint that is ready now"
                )
            }
        ),
        "embedded/ipvs",
    ),
    InAGuest(
        "ipvs/strict-arp-and-excluded-networks",
        Mutation(
            f"{IPVS}.writer",
            "IpvsWriter.__init__",
            "lambda self, family, tables, settings, mutation, whole=module.IpvsWriter.__init__,"
            " replace=__import__('msgspec').structs.replace:"
            " whole(self, family, tables, replace(settings, ipvs=replace(settings.ipvs, exclude_cidrs=())), mutation)",
        ),
        frozenset({f"{GIVEN_AWAY}: external IP inside excludeCIDRs keeps its virtual server in mode ipvs"}),
        "embedded/ipvs",
        "excludeCIDRs keeps no virtual server",
    ),
    InAGuest(
        "ipvs/strict-arp-and-excluded-networks",
        Mutation(f"{IPVS}.node", "IpvsNode.end", "lambda self, servers: None"),
        frozenset({f"{GIVEN_AWAY}: external IP outside excludeCIDRs loses its virtual server in mode ipvs"}),
        "embedded/ipvs",
    ),
    InAGuest(
        "steps/a-rolling-update",
        Mutation(f"{IPVS}.node", "Ending.begin", "lambda self, ipvs, pairs: ipvs.delete_destinations(list(pairs))"),
        frozenset(
            {
                "the old pod terminates but serves, and streams stay with it",
                "the old pod is deleted, and streams go on with the new pod",
            }
        ),
        "embedded/ipvs",
    ),
    InAGuest(
        "network/hairpin",
        Mutation(f"{IPVS}.tables", "_hairpins", "lambda port: ()"),
        frozenset({"ClusterIP from a pod to itself is delivered and masqueraded"}),
        "embedded/ipvs",
    ),
    InAGuest(
        "nodeport/traffic-policy-local",
        Mutation(
            f"{IPVS}.tables", "_usable", "lambda endpoints, *, local: endpoints.local if local else endpoints.cluster"
        ),
        frozenset(
            {
                "NodePort with externalTrafficPolicy Local drops on a node without endpoint",
                "NodePort with externalTrafficPolicy Local serves a pod without a local endpoint",
            }
        ),
        "embedded/ipvs",
    ),
    InAGuest(
        "userspace/round-robin-and-affinity",
        Mutation(
            f"{IPVS}.tables",
            "_Planning.tables",
            "lambda self, whole=module._Planning.tables, replace=__import__('msgspec').structs.replace:"
            " replace(made := whole(self), servers={key: replace(each, scheduler='sh')"
            " for key, each in made.servers.items()})",
        ),
        frozenset({"ClusterIP spreads connections evenly over two endpoints in every mode"}),
        "embedded/ipvs",
        "virtual servers choose by the client's address",
    ),
]


@OWN
@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", IN_A_GUEST, ids=str)
def test_what_needs_a_rule_turns_red_without_it_in_a_guest(row: InAGuest, tmp_path: Path) -> None:
    file = ROOT / "scenarios" / f"{row.scenario}.lab.yaml"
    with closing(MutatedLabs(tmp_path, row.engine, kernel="uml")) as labs:
        verdicts = [each for _, judged in labs.run([file], row.mutation) for each in judged]
    failed = failures(verdicts)
    assert {*failed} == row.red
    compare(row.named, row.engine, {row.scenario: failed})
