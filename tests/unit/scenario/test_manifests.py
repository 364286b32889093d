"""Services as people write them and as kubectl prints them."""

from ipaddress import ip_address, ip_network

import pytest
from broken_scenarios import BASE, noted
from golden_words import Told

from proxylab.addresses import Family, Protocol
from proxylab.cluster.documents import document_of
from proxylab.cluster.objects import LoadBalancerIngress, Service, ServicePort, ServiceType, TrafficPolicy
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

EXPORTED = """\
apiVersion: v1
items:
- apiVersion: v1
  kind: Service
  metadata:
    annotations:
      kubectl.kubernetes.io/last-applied-configuration: |
        {"apiVersion":"v1","kind":"Service"}
    creationTimestamp: "2025-11-03T10:20:30Z"
    labels: {app: web}
    managedFields:
    - {apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}, manager: kubectl, operation: Update}
    name: web
    namespace: prod
    resourceVersion: "4711"
    uid: 1f9d9f0c-0000-4000-8000-000000000000
  spec:
    allocateLoadBalancerNodePorts: true
    clusterIP: 10.96.12.34
    clusterIPs:
    - 10.96.12.34
    externalIPs: [198.51.100.7]
    externalTrafficPolicy: Local
    healthCheckNodePort: 31111
    internalTrafficPolicy: Cluster
    ipFamilies:
    - IPv4
    ipFamilyPolicy: SingleStack
    loadBalancerSourceRanges: [" 192.0.2.0/24"]
    ports:
    - {appProtocol: http, name: http, nodePort: 30080, port: 80, protocol: TCP, targetPort: web}
    - {name: quic, nodePort: 30080, port: 80, protocol: UDP, targetPort: 8443}
    publishNotReadyAddresses: true
    selector: {app: web}
    sessionAffinity: ClientIP
    sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
    trafficDistribution: PreferClose
    type: LoadBalancer
  status:
    conditions: []
    loadBalancer:
      ingress:
      - {ip: 198.51.100.10, ipMode: Proxy}
      - {hostname: lb.example.org}
kind: List
metadata:
  resourceVersion: ""
"""


def read(manifest: str) -> Scenario:
    return parse_scenario(f"{BASE}---\n{manifest}", "f")


def service(spec: str, name: str = "web") -> Service:
    return read(f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {spec}\n").services[-1]


def test_a_list_as_kubectl_prints_it() -> None:
    scenario = read(EXPORTED)
    assert scenario.services[-1] == Service(
        namespace="prod",
        name="web",
        labels={"app": "web"},
        annotations={
            "kubectl.kubernetes.io/last-applied-configuration": '{"apiVersion":"v1","kind":"Service"}\n',
        },
        type=ServiceType.LOAD_BALANCER,
        selector={"app": "web"},
        ports=(
            ServicePort(name="http", protocol=Protocol.TCP, port=80, target_port="web", node_port=30080),
            ServicePort(name="quic", protocol=Protocol.UDP, port=80, target_port=8443, node_port=30080),
        ),
        cluster_ips=(ip_address("10.96.12.34"),),
        ip_families=(Family.IPV4,),
        external_ips=(ip_address("198.51.100.7"),),
        load_balancer_ingress=(
            LoadBalancerIngress(ip=ip_address("198.51.100.10"), ip_mode="Proxy"),
            LoadBalancerIngress(hostname="lb.example.org"),
        ),
        source_ranges=(ip_network("192.0.2.0/24"),),
        external_traffic_policy=TrafficPolicy.LOCAL,
        health_check_node_port=31111,
        affinity_timeout=60,
        publish_not_ready_addresses=True,
        traffic_distribution="PreferClose",
    )


def test_keys_without_effect_are_named_once(told: Told) -> None:
    (note,) = noted(read(EXPORTED))
    assert note == told()


def test_defaults_are_those_of_the_api_server() -> None:
    assert service("{ports: [{port: 80}]}") == Service(
        namespace="default",
        name="web",
        type=ServiceType.CLUSTER_IP,
        ports=(ServicePort(protocol=Protocol.TCP, port=80, target_port=80),),
        ip_family_policy="SingleStack",
        internal_traffic_policy=TrafficPolicy.CLUSTER,
        external_traffic_policy=TrafficPolicy.CLUSTER,
        affinity_timeout=None,
    )


@pytest.mark.parametrize(
    ("config", "timeout"),
    [
        ("", 10800),
        ("sessionAffinityConfig: {}, ", 10800),
        ("sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}, ", 5),
    ],
)
def test_affinity_lasts_three_hours_unless_said_otherwise(config: str, timeout: int) -> None:
    assert service(f"{{sessionAffinity: ClientIP, {config}ports: [{{port: 80}}]}}").affinity_timeout == timeout


def test_nulls_are_absent_as_for_the_api_server() -> None:
    text = "{type: null, clusterIP: '', selector: null, ports: [{port: 80, targetPort: null, name: null}]}"
    assert service(text) == service("{ports: [{port: 80}]}")


def test_a_null_is_not_named_among_the_keys_without_effect() -> None:
    text = EXPORTED.replace('creationTimestamp: "2025-11-03T10:20:30Z"', "creationTimestamp: null")
    (note,) = noted(read(text))
    assert "creationTimestamp" not in note
    assert "metadata.uid" in note


def test_headless_and_external_name() -> None:
    assert service("{clusterIP: None}").headless
    assert service("{clusterIPs: [None], ports: [{port: 80}]}").headless
    assert service("{clusterIP: None}").cluster_ips == ()
    named = service("{type: ExternalName, externalName: example.org.}")
    assert (named.type, named.external_name) == (ServiceType.EXTERNAL_NAME, "example.org.")


def test_a_balancer_without_node_ports() -> None:
    assert not service(
        "{type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}"
    ).allocate_node_ports


def test_cluster_ips_are_checked_against_the_networks_of_the_scenario() -> None:
    own = BASE.replace("spec:\n  nodes", "spec:\n  network: {serviceCIDR: 10.8.0.0/16}\n  nodes", 1)
    manifest = (
        "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.8.0.9, ports: [{port: 80}]}\n"
    )
    assert parse_scenario(own + manifest, "f").services[-1].cluster_ips == (ip_address("10.8.0.9"),)


def test_services_of_one_name_in_two_namespaces() -> None:
    text = "apiVersion: v1\nkind: Service\nmetadata: {name: echo, namespace: prod}\nspec: {ports: [{port: 80}]}\n"
    assert [each.namespace for each in read(text).services] == ["default", "prod"]


OLD = """\
apiVersion: v1
kind: Service
metadata: {name: old}
spec: {clusterIP: 10.96.000.010, externalIPs: [198.51.100.7, 198.051.100.008], ports: [{port: 80}], type: LoadBalancer,
  loadBalancerSourceRanges: [" 203.0.113.016/28"]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: old-1, labels: {kubernetes.io/service-name: old}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [010.244.000.007]}]
"""


def test_addresses_with_leading_zeros_are_decimal_and_keep_their_text() -> None:
    read_old = read(OLD)
    old, (made,) = read_old.services[-1], read_old.slices
    assert old.cluster_ips == (ip_address("10.96.0.10"),)
    assert old.source_ranges == (ip_network("203.0.113.16/28"),)
    assert old.stored == {
        "10.96.0.10": "10.96.000.010",
        "198.51.100.8": "198.051.100.008",
        "203.0.113.16/28": " 203.0.113.016/28",
    }
    assert made.endpoints[0].addresses == (ip_address("10.244.0.7"),)
    assert made.stored == {"10.244.0.7": "010.244.000.007"}
    assert [note for note in read_old.notes if "leading zeros" in note] == [
        f"{where} for {usual}; today's API server refuses leading zeros"
        for where, usual in (
            ("Service old: spec.clusterIP: proxies take 10.96.000.010", "10.96.0.10"),
            ("Service old: spec.externalIPs[1]: proxies take 198.051.100.008", "198.51.100.8"),
            ("Service old: spec.loadBalancerSourceRanges[0]: proxies take  203.0.113.016/28", "203.0.113.16/28"),
            ("EndpointSlice old-1: endpoints[0].addresses[0]: proxies take 010.244.000.007", "10.244.0.7"),
        )
    ]


def test_proxies_get_addresses_as_they_are_stored() -> None:
    read_old = read(OLD)
    spec = document_of(read_old.services[-1], 1, "2026-01-02T03:04:05Z")["spec"]
    assert spec["clusterIPs"] == ["10.96.000.010"]
    assert spec["externalIPs"] == ["198.51.100.7", "198.051.100.008"]
    assert spec["loadBalancerSourceRanges"] == [" 203.0.113.016/28"]
    assert document_of(read_old.slices[0], 1, "2026-01-02T03:04:05Z")["endpoints"][0]["addresses"] == [
        "010.244.000.007"
    ]
