"""Whole clusters, of the shapes that kind, k3s and clouds make, become scenarios that ``check`` has nothing against."""

import json
from collections.abc import Callable
from ipaddress import ip_address

import pytest
from growing_cluster import Cluster
from kubectl_clusters import cloud, k3s, kind, vpc
from kubectl_objects import Raw

from proxylab.cluster.allocate import NODE_PORTS
from proxylab.errors import ScenarioError
from proxylab.features.import_.importing import Imported, import_cluster
from proxylab.features.import_.reading import read_kubectl_output
from proxylab.oracle.promised import promised_cases
from proxylab.plan.assembly import assemble
from proxylab.scenario.expect import PROMISED, Expect, Masqueraded
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

SHAPES = {"kind": kind, "k3s": k3s, "cloud": cloud, "vpc": vpc}


def imported(cluster: Cluster) -> tuple[Imported, Scenario]:
    done = import_cluster(read_kubectl_output([("printout", cluster.json())]), "mine")
    return done, parse_scenario(done.text, "mine.lab.yaml")


def promised(scenario: Scenario) -> dict[str, Expect]:
    """What kube-proxy 1.37 in mode iptables must do with each probe, by its name."""
    (case,) = promised_cases(scenario, "iptables", (1, 37))
    return {each.name: each.expect for each in case.probes}


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


def test_pods_among_their_nodes_keep_their_own_addresses() -> None:
    cluster = vpc()
    done, scenario = imported(cluster)
    pods = {address: pod.name for pod in scenario.pods for address in pod.addresses}
    ends = [each.addresses[0] for found in scenario.slices if found.service == "web" for each in found.endpoints]
    printed = [
        each for found in cluster.slices if found["metadata"]["name"].startswith("web-") for each in found["endpoints"]
    ]
    assert sorted(map(str, ends)) == sorted(each["addresses"][0] for each in printed)
    assert [pods[each].rpartition("-")[0] for each in ends] == [pods[ends[0]].rpartition("-")[0]] * 3
    (of_nodes,) = scenario.network.node_cidrs
    assert all(each in of_nodes for each in pods)
    assert not any(line.startswith("addresses of pods:") for line in done.left)


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
    assert [each.removeprefix("#   ") for each in head[3:]] == list(done.left)


def test_probes_leave_to_the_oracle_what_must_happen() -> None:
    done, scenario = imported(cloud())
    assert "expect:" not in done.text
    assert {(each.expect.also, each.expect.undecided) for each in scenario.probes} == {(PROMISED.also, "")}
    assert {each for each in promised(scenario).values() if each.undecided} == set()


def test_outcomes_follow_from_the_objects() -> None:
    _, scenario = imported(cloud())
    expected = promised(scenario)
    said = {name: str(each.outcome) for name, each in expected.items()}
    assert said["shop search 80 by clusterIP"] == "rejected"
    assert said["shop old 80 by clusterIP"] == "delivered"
    assert said["edge gateway-internal http by loadBalancerIP"] == "dropped"
    assert "edge gateway-proxied http by loadBalancerIP" not in said
    assert len(expected["edge nearby http by clusterIP"].backends or ()) == 1


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


def as_endpoints(cluster: Cluster) -> list[Raw]:
    """The cluster's slices of IPv4 as the older Endpoints, which a cluster before 1.19 has alone."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {**each["metadata"], "name": each["metadata"]["labels"]["kubernetes.io/service-name"]},
            "subsets": [
                {
                    key: [
                        {"ip": one["addresses"][0], "nodeName": one.get("nodeName"), "targetRef": one.get("targetRef")}
                        for one in each["endpoints"]
                        if one["conditions"].get("ready") is ready
                    ]
                    for key, ready in (("addresses", True), ("notReadyAddresses", False))
                }
                | {"ports": each["ports"]}
            ],
        }
        for each in cluster.slices
        if each["addressType"] == "IPv4" and each["endpoints"]
    ]


def test_endpoints_stand_for_slices_that_are_not_there() -> None:
    cluster = k3s()
    _, by_slices = imported(cluster)
    whole = [*cluster.objects, *as_endpoints(cluster)]
    text = json.dumps({"kind": "List", "items": [each for each in whole if each["kind"] != "EndpointSlice"]})
    done = import_cluster(read_kubectl_output([("printout", text)]), "mine")
    scenario = parse_scenario(done.text, "mine.lab.yaml")
    reached, wanted = (promised(found)["shop web http by clusterIP"].backend_names for found in (scenario, by_slices))
    assert reached == wanted != ()
    assert any(line.startswith("Endpoints without EndpointSlices, which mirror them here: ") for line in done.left)


def test_without_slices_and_endpoints_a_probe_expects_the_pods_that_the_lab_finds() -> None:
    cluster = k3s()
    _, by_slices = imported(cluster)
    cluster.slices.clear()
    _, scenario = imported(cluster)
    assert not [each for each in scenario.slices if each.service == "web"]
    found, wanted = (promised(one)["shop web http by clusterIP"] for one in (scenario, by_slices))
    assert (found.outcome, set(found.backend_names)) == (wanted.outcome, set(wanted.backend_names))


def test_names_that_the_lab_has_itself_are_changed() -> None:
    cluster = k3s()
    first = next(each for each in cluster.pods if each["metadata"]["labels"].get("app") == "web")
    named = next(
        one
        for each in cluster.slices
        for one in each["endpoints"]
        if one.get("targetRef", {}).get("name") == first["metadata"]["name"]
    )
    first["metadata"]["name"] = named["targetRef"]["name"] = "router"
    done, scenario = imported(cluster)
    assert "shop-router" in {pod.name for pod in scenario.pods}
    assert "names that the lab has itself: shop/router is called shop-router" in done.left


def config_map(configuration: str, name: str = "kube-proxy") -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "kube-system"},
            "data": {"config.conf": configuration, "kubeconfig.conf": "kind: Config"},
        }
    )


def configured(configuration: str) -> tuple[Imported, Scenario]:
    texts = [("printout", k3s().json()), ("map", config_map(configuration))]
    done = import_cluster(read_kubectl_output(texts), "mine")
    return done, parse_scenario(done.text, "mine.lab.yaml")


KUBEADM = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
clientConnection: {acceptContentTypes: "", kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, qps: 0}
clusterCIDR: 10.42.0.0/16
configSyncPeriod: 0s
conntrack: {maxPerCore: null, min: null, tcpCloseWaitTimeout: null, tcpEstablishedTimeout: null}
enableProfiling: false
healthzBindAddress: ""
hostnameOverride: ""
iptables: {localhostNodePorts: null, masqueradeAll: true, masqueradeBit: null, minSyncPeriod: 0s, syncPeriod: 0s}
ipvs: {excludeCIDRs: null, minSyncPeriod: 0s, scheduler: lc, strictARP: true, syncPeriod: 0s, tcpTimeout: 0s}
kind: KubeProxyConfiguration
metricsBindAddress: ""
mode: ipvs
nodePortAddresses: null
winkernel: {networkName: ""}
"""


def test_the_config_map_of_kube_proxy_is_read() -> None:
    done, scenario = configured(KUBEADM)
    proxy = scenario.proxy
    assert proxy is not None
    assert (proxy.ipvs.scheduler, proxy.ipvs.strict_arp, proxy.masquerade_all) == ("lc", True, True)
    assert list(map(str, proxy.cluster_cidrs or ())) == ["10.42.0.0/16"]
    assert done.engine == "kube-proxy@v1.34.2/ipvs"
    assert "# The cluster's proxy: --engine kube-proxy@v1.34.2/ipvs" in done.text
    assert not [note for note in scenario.notes if "no effect in KubeProxyConfiguration" in note]
    assert isinstance(promised(scenario)["shop web http by clusterIP"].source, Masqueraded)


def test_without_a_network_of_pods_the_proxy_takes_none_for_its_own() -> None:
    proxy = configured(KUBEADM.replace("10.42.0.0/16", '""').replace("masqueradeAll: true", "masqueradeAll: false"))[
        1
    ].proxy
    assert proxy is not None
    assert proxy.cluster_cidrs == ()


def test_detection_by_device_stays_behind() -> None:
    done, scenario = configured(
        KUBEADM + "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: cali}\n"
    )
    assert scenario.proxy is not None
    assert "detection of local pods by device: detectLocalMode InterfaceNamePrefix" in done.left


def test_the_version_is_that_of_the_proxys_image_before_the_kubelets() -> None:
    cluster = kind()
    pod = cluster.pods[0]
    pod["spec"]["containers"][0]["image"] = "registry.k8s.io/kube-proxy-amd64:v1.33.7@sha256:0123"
    assert imported(cluster)[0].engine == "kube-proxy@v1.33.7/iptables"


def test_a_cluster_with_kube_dns_has_names_in_the_lab() -> None:
    assert imported(kind())[1].dns
    cluster = k3s()
    cluster.services[:] = [each for each in cluster.services if each["metadata"]["name"] != "kube-dns"]
    cluster.slices[:] = [
        each for each in cluster.slices if each["metadata"]["labels"]["kubernetes.io/service-name"] != "kube-dns"
    ]
    assert not imported(cluster)[1].dns


def test_a_changed_traffic_policy_shows_from_outside() -> None:
    """By policy Cluster a node masquerades what comes from outside, by Local it does not."""
    cluster = cloud()
    exposed = next(each for each in cluster.services if each["metadata"]["name"] == "gateway-internal")["spec"]
    name = "edge gateway-internal http by nodePort from outside"
    before = promised(imported(cluster)[1])
    exposed["externalTrafficPolicy"] = "Local"
    after = {key: each for key, each in promised(imported(cluster)[1]).items() if key.startswith(name)}
    assert isinstance(before[name].source, Masqueraded)
    assert {str(each.outcome) for each in after.values()} == {"delivered", "dropped"}
    assert not any(isinstance(each.source, Masqueraded) for each in after.values())


def test_an_object_that_no_server_would_print() -> None:
    cluster = k3s()
    cluster.services[1]["spec"]["ports"][0]["protocol"] = "ICMP"
    with pytest.raises(ScenarioError, match="not as an API server prints it"):
        imported(cluster)
