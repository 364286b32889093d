"""The oracle answers 10,000 questions a second, and takes a second at most to begin with 5,000 Services.

The times are those of the processor, so that a busy machine changes little.
"""

from ipaddress import ip_address
from time import process_time

import pytest
from oracle_worlds import PROXY, cluster_of, moment_and_assembly

from proxylab.addresses import Family, Transport
from proxylab.cluster.objects import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort, ServiceType
from proxylab.oracle.answers import FlowQuestion
from proxylab.oracle.flows import Oracle
from proxylab.oracle.moment import Moment
from proxylab.scenario.words import Outcome

pytestmark = [pytest.mark.benchmark, pytest.mark.budget]

SERVICES, SECONDS_TO_LOAD, ANSWERS_A_SECOND = 5000, 1.0, 10_000
FIRST_ADDRESS = int(ip_address("10.96.2.0"))
NETWORK = """
nodes: {node-a: {}, node-b: {}, node-c: {}}
pods:
  web: {replicas: 6, nodes: [node-a, node-b, node-c], ports: [8080]}
  client: {nodes: [node-a]}
"""


def test_the_oracle_answers_ten_thousand_questions_a_second() -> None:
    there, assembly = moment_and_assembly(cluster_of(NETWORK))
    pods = [pod for pod in assembly.plan.pods if pod.name != "client"]
    (source,) = (pod.addresses[0] for pod in assembly.plan.pods if pod.name == "client")
    services, slices = [], []
    for number in range(SERVICES):
        services.append(
            Service(
                name=f"s{number}",
                type=ServiceType.NODE_PORT,
                cluster_ips=(ip_address(FIRST_ADDRESS + number),),
                ip_families=(Family.IPV4,),
                ports=(ServicePort(port=80, target_port=8080, node_port=20000 + number),),
            )
        )
        ends = (pods[(number + far) % len(pods)] for far in (0, 1, 3))
        slices.append(
            EndpointSlice(
                name=f"s{number}-1",
                service=f"s{number}",
                address_type=Family.IPV4,
                ports=(EndpointPort(port=8080),),
                endpoints=tuple(Endpoint(addresses=(pod.addresses[0],), node_name=pod.node) for pod in ends),
            )
        )
    began = process_time()
    moment = Moment(
        services=services,
        slices=slices,
        nodes=there.nodes.values(),
        plan=assembly.plan,
        setting=PROXY,
        pod_networks=assembly.scenario.network.pod_cidrs,
        service_networks=assembly.scenario.network.service_cidrs,
    )
    oracle = Oracle(moment)
    loaded = process_time()
    found = [
        oracle.answer(
            FlowQuestion(
                sender="client", source=source, destination=service.cluster_ips[0], port=80, protocol=Transport.TCP
            )
        )
        for service in services
    ]
    answered = process_time()
    rate = SERVICES / (answered - loaded)
    print(f"{SERVICES} Services in {loaded - began:.2f} s, then {rate:,.0f} answers a second")  # noqa: T201
    assert {(each.outcomes, len(each.reached)) for each in found} == {((Outcome.DELIVERED,), 3)}
    assert loaded - began < SECONDS_TO_LOAD
    assert rate > ANSWERS_A_SECOND
