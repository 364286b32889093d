"""What changes after traffic began, in upstream's end-to-end tests of Services, and the scenario that shows it here.

The names are upstream's (test/e2e/network of kubernetes), without their labels, and some shortened. Rows are all
behaviours of these tests that packets can show and that need a step.
"""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

SCENARIOS = Path(__file__).parents[2] / "scenarios"

SHOWN = {
    "service.go: should serve a basic endpoint from pods": (
        "the endpoints are one, two, one and none in turn, and the Service leads to just these",
        "steps/scaled-to-nothing::scaled to one",
    ),
    "service.go: should be updated after adding or deleting ports": (
        "a port that is added is served, one that is taken out no longer",
        "steps/a-service-changes::it loses the first port",
    ),
    "service.go: should be able to up and down services": (
        "one Service goes, and its neighbour does not mind",
        "steps/a-service-changes::it is deleted",
    ),
    "service.go: should work after the service has been recreated": (
        "a Service of the same name leads to its own pods, not to those of the one before it",
        "bugs/48370-asked-before-the-service-was-there::it is made again for another pod",
    ),
    "service.go: should work after restarting kube-proxy": (
        "flows that stand survive, and new ones are served throughout",
        "steps/the-proxy-is-gone-under-streams::it is restarted",
    ),
    "service.go: should be able to change the type from ExternalName to ClusterIP": (
        "a name becomes an address",
        "steps/a-service-changes::it has an address again",
    ),
    "service.go: should be able to change the type from ClusterIP to ExternalName": (
        "an address becomes a name, and nothing of it is left",
        "steps/a-service-changes::it becomes a name for something else",
    ),
    "service.go: should create endpoints for unready pods": (
        "a pod that is not ready is not reached, and is when it is",
        "steps/scaled-under-streams::it is ready",
    ),
    "service.go: should have session affinity timeout work for service with type clusterIP": (
        "a client stays, and moves when its backend goes",
        "steps/clients-who-stick::its backend is not ready",
    ),
    "service.go: should be able to switch session affinity for service with type clusterIP": (
        "affinity is put on and off, and clients follow",
        "steps/policies-change::affinity off",
    ),
    "service.go: should be rejected when no endpoints exist": (
        "who dials is told at once, also on flows that stood",
        "steps/scaled-under-streams::nobody is there",
    ),
    "service.go: should fail health check node port if there are only terminating endpoints": (
        "the health check says no while the pod still serves",
        "steps/a-rolling-update-behind-a-balancer::the old one terminates and serves",
    ),
    "service.go: should fallback to terminating endpoints when there are no ready endpoints": (
        "a pod that terminates serves as the last resort, under the policy Local",
        "steps/a-rolling-update-behind-a-balancer::the old one terminates and serves",
    ),
    "service.go: should serve endpoints on same port and different protocol": (
        "what is over UDP and what is over TCP change apart",
        "steps/a-rolling-update::the old one is gone",
    ),
    "service.go: should implement NodePort and HealthCheckNodePort correctly when ExternalTrafficPolicy changes": (
        "three nodes under Local, Cluster and Local again",
        "steps/a-policy-on-three-nodes::Local again",
    ),
    "loadbalancer.go: should be able to preserve UDP traffic when server pod cycles for a LoadBalancer service": (
        "datagrams to a balancer's address go on with the next pod",
        "steps/a-rolling-update-behind-a-balancer::the old one is gone",
    ),
    "loadbalancer.go: should not have connectivity disruption during rolling update, Cluster": (
        "nothing is lost",
        "steps/a-rolling-update::the old one is gone",
    ),
    "loadbalancer.go: should not have connectivity disruption during rolling update, Local": (
        "nothing is lost behind a balancer that follows health checks",
        "steps/a-rolling-update-behind-a-balancer::the old one terminates and serves",
    ),
    "networking.go: should update endpoints: http": (
        "an endpoint that is deleted answers no more, the others do",
        "steps/clients-who-stick::another goes",
    ),
    "networking.go: should update endpoints: udp": (
        "likewise, for a client that keeps its port",
        "steps/a-rolling-update::the old one is gone",
    ),
    "networking.go: should update nodePort: http": (
        "a node port that is nobody's any more answers nobody",
        "steps/a-service-changes::it loses the first port",
    ),
    "networking.go: should recreate its iptables rules if they are deleted": (
        "rules that are flushed come back, and flows that stood with them",
        "steps/the-proxy-is-gone-under-streams::its rules are flushed",
    ),
    "conntrack.go: should be able to preserve UDP traffic when server pod cycles for a NodePort service": (
        "an outside client's datagrams go on with the next pod",
        "steps/a-rolling-update::the old one is gone",
    ),
    "conntrack.go: should be able to preserve UDP traffic when server pod cycles for a ClusterIP service": (
        "a pod's datagrams go on with the next pod",
        "steps/a-rolling-update::the old one is gone",
    ),
    "conntrack.go: should be able to preserve UDP traffic when initial unready endpoints get ready": (
        "what was turned away while nobody was ready is answered when somebody is",
        "steps/scaled-under-streams::it is ready",
    ),
    "conntrack.go: should be able to cleanup conntrack entries when UDP service target port changes for a NodePort": (
        "an endpoint keeps its address and changes its port",
        "bugs/130542-another-target-port::at the other",
    ),
}


@pytest.mark.parametrize("test", SHOWN)
def test_a_behaviour_of_upstreams_tests_has_its_step(test: str) -> None:
    words, where = SHOWN[test]
    name, _, step = where.partition("::")
    with (SCENARIOS / f"{name}.lab.yaml").open(encoding="utf-8") as file:
        document = next(iter(YAML(typ="safe").load_all(file)))
    assert words
    assert step in [each["name"] for each in document["spec"]["steps"]]
