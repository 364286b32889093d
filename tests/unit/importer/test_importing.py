"""Whole clusters, of the shapes that kind, k3s and clouds make, become scenarios that ``check`` has nothing against."""

from collections.abc import Callable
from ipaddress import ip_address

import pytest
from growing_cluster import Cluster
from kubectl_clusters import cloud, k3s, kind, vpc

from proxylab.cluster.allocate import NODE_PORTS
from proxylab.errors import ScenarioError
from proxylab.importer.importing import Imported, import_cluster
from proxylab.importer.reading import read_kubectl_output
from proxylab.plan.assembly import assemble
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

SHAPES = {"kind": kind, "k3s": k3s, "cloud": cloud, "vpc": vpc}


def imported(cluster: Cluster) -> tuple[Imported, Scenario]:
    done = import_cluster(read_kubectl_output([("printout", cluster.json())]), "mine")
    return done, parse_scenario(done.text, "mine.lab.yaml")


@pytest.mark.parametrize("make", [kind, k3s, cloud], ids=["kind", "k3s", "cloud"])
def test_the_printouts_are_as_large_as_real_ones(make: Callable[[], Cluster]) -> None:
    objects = make().objects
    assert len(objects) >= 60
    assert all({"managedFields", "uid", "resourceVersion"} <= each["metadata"].keys() for each in objects)


@pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES)
def test_the_scenario_can_be_laid_out_and_sends_to_every_service(make: Callable[[], Cluster]) -> None:
    cluster = make()
    _, scenario = imported(cluster)
    assemble(scenario)
    dialled = {
        (each.target.namespace, each.target.service) for each in scenario.probes if hasattr(each.target, "service")
    }
    for each in scenario.services:
        assert each.external_name or each.headless or (each.namespace, each.name) in dialled
    assert len({each.name for each in scenario.probes}) == len(scenario.probes)


@pytest.mark.parametrize("make", [kind, k3s, cloud], ids=["kind", "k3s", "cloud"])
def test_services_endpoints_and_addresses_are_those_of_the_cluster(make: Callable[[], Cluster]) -> None:
    cluster = make()
    _, scenario = imported(cluster)
    given = {each["metadata"]["name"]: each for each in cluster.nodes}
    for node in scenario.nodes:
        own = [each["address"] for each in given[node.name]["status"]["addresses"] if each["type"] == "InternalIP"]
        assert set(map(str, node.internal_ips)) == set(own)
    services = {(each["metadata"]["namespace"], each["metadata"]["name"]): each["spec"] for each in cluster.services}
    assert {(each.namespace, each.name) for each in scenario.services} == set(services)
    for service in scenario.services:
        ips = [each for each in services[service.namespace, service.name].get("clusterIPs", []) if each != "None"]
        assert list(map(str, service.cluster_ips)) == ips
    stand_ins = {"192.0.2.50", "172.16.0.2"}
    printed = [each["addresses"][0] for found in cluster.slices for each in found["endpoints"] or []]
    kept = {str(each.addresses[0]) for found in scenario.slices for each in found.endpoints}
    assert kept >= set(printed) - stand_ins
    assert len(kept) == len(set(printed))


def test_pods_among_their_nodes_keep_their_places_in_slices_by_other_addresses() -> None:
    done, scenario = imported(vpc())
    pods = {address: pod.name for pod in scenario.pods for address in pod.addresses}
    ends = [each.addresses[0] for found in scenario.slices if found.service == "web" for each in found.endpoints]
    assert [pods[each].rpartition("-")[0] for each in ends] == [pods[ends[0]].rpartition("-")[0]] * 3
    (of_nodes,) = scenario.network.node_cidrs
    assert not any(each in of_nodes for each in pods)
    assert any(line.startswith("addresses of pods:") for line in done.left)


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (kind, ["pods without an address: shop/recommender-", "pods that have finished: data/backup-29410-"]),
        (kind, ["names of pods that others have, or that are too long: staging/db-0 is called staging-db-0"]),
        (kind, ["Services that are only a name for another: nothing to dial: shop/payments"]),
        (k3s, ["programs on nodes; pods with their nodes' network stand for them: k3s-server, TCP port 6443"]),
        (k3s, ["the NotReady state of nodes, since nodes of a lab are ready: k3s-agent-2"]),
        (cloud, ["addresses outside the cluster; hosts with other addresses stand for them: 172.16.0.2 is outside-1"]),
        (cloud, ["balancers that are known by name only: nodes have no rules for them: edge/gateway-proxied"]),
        (cloud, ["external addresses of nodes: gke-prod-default-pool-1a2b3c4d-"]),
        (
            vpc,
            ["names that a lab's nodes cannot have: ip-10-0-8-200.eu-west-1.compute.internal is called ip-10-0-8-200"],
        ),
    ],
)
def test_what_stays_behind_is_told_and_written_at_the_head(make: Callable[[], Cluster], lines: list[str]) -> None:
    done, _ = imported(make())
    for line in lines:
        assert [each for each in done.left if each.startswith(line)]
    head = done.text.split("apiVersion", 1)[0].splitlines()
    assert [each.removeprefix("#   ") for each in head[2:]] == list(done.left)


def expectations(scenario: Scenario) -> dict[str, str]:
    return {each.name: str(each.expect.outcome) for each in scenario.probes}


def test_outcomes_follow_from_the_objects() -> None:
    _, scenario = imported(cloud())
    said = expectations(scenario)
    assert said["shop search 80 by clusterIP"] == "rejected"
    assert said["shop old 80 by clusterIP"] == "delivered"
    assert said["edge gateway-internal http by loadBalancerIP"] == "dropped"
    assert "edge gateway-proxied http by loadBalancerIP" not in said
    (near,) = (each for each in scenario.probes if each.name == "edge nearby http by clusterIP")
    assert len(near.expect.backends) == 1


def test_node_ports_beyond_the_default_range_widen_the_range() -> None:
    assert imported(cloud())[1].network.node_ports == NODE_PORTS
    cluster = cloud()
    exposed = next(port for each in cluster.services for port in each["spec"].get("ports", []) if "nodePort" in port)
    exposed["nodePort"] = 443
    assert str(imported(cluster)[1].network.node_ports) == "443-32767"


def test_addresses_with_leading_zeros_stay_as_they_are_stored() -> None:
    cluster = kind()
    stored = next(each for each in cluster.services if each["metadata"]["name"] == "web")
    usual = stored["spec"]["clusterIP"]
    old = usual.replace("10.", "010.", 1)
    stored["spec"] |= {"clusterIP": old, "clusterIPs": [old]}
    (web,) = (each for each in imported(cluster)[1].services if each.name == "web")
    assert web.stored == {usual: old}


def test_without_slices_the_pods_are_found_by_their_labels() -> None:
    cluster = k3s()
    cluster.slices.clear()
    _, scenario = imported(cluster)
    assert {pod.labels["app"] for pod in scenario.pods if pod.labels} >= {"web", "cart", "db"}


def test_without_pods_the_slices_tell_of_them() -> None:
    cluster = k3s()
    cluster.pods.clear()
    _, scenario = imported(cluster)
    assert ip_address("10.42.1.5") in {address for pod in scenario.pods for address in pod.addresses}


def test_an_object_that_no_server_would_print() -> None:
    cluster = k3s()
    cluster.services[1]["spec"]["ports"][0]["protocol"] = "ICMP"
    with pytest.raises(ScenarioError, match="not as an API server prints it"):
        imported(cluster)
