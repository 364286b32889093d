"""Why a Service has no endpoint: its selector, the pods that it may have meant, and the cure."""

import pytest

from proxylab.addresses import Family
from proxylab.cluster.objects import Pod, Service, ServicePort
from proxylab.plan.dialled_service import DialledService
from proxylab.scenario.words import Frontend
from proxylab.verdict.causes.no_endpoint import GIVE_ENDPOINTS, RELABEL, why_none_usable

PORT = ServicePort(port=80, target_port=8080)


def dialled(selector: dict[str, str], *pods: Pod) -> DialledService:
    service = Service(name="echo", ports=(PORT,), selector=selector)
    return DialledService(
        service=service, port=PORT, family=Family.IPV4, via=Frontend.CLUSTER_IP, slices=(), pods=pods, nodes=("node-a",)
    )


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ({"app": "web"}, f"the selector app=echo matches no pod (pod has app=web); {RELABEL}."),
        ({"tier": "web"}, f"the selector app=echo matches no pod; {RELABEL}."),
        ({}, f"the selector app=echo matches no pod; {RELABEL}."),
    ],
)
def test_a_pod_with_another_value_of_the_selectors_key_is_named(labels: dict[str, str], sentence: str) -> None:
    assert (
        why_none_usable(dialled({"app": "echo"}, Pod(name="pod", node_name="node-a", labels=labels, addresses=())))
        == sentence
    )


def test_a_service_without_selector_lacks_a_slice() -> None:
    lacks = "default/echo has no selector, and no EndpointSlice names an endpoint for it"
    assert why_none_usable(dialled({})) == f"{lacks}; {GIVE_ENDPOINTS}."
