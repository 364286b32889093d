"""Puts the objects of a lab into the real API, and reports the lab's nodes and pods as their kubelets would.

A scenario's Deployments and other workloads stay out: their controllers would make new pods beside those of the lab.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from proxylab.cluster.objects import EndpointSlice, KubeObject, Namespace, Node, Pod, Service
from proxylab.cluster.store import Store
from proxylab.control.kubernetes.api_client import ApiClient, ApiRefusedError
from proxylab.control.kubernetes.documents import (
    MERGE,
    collection_of,
    created,
    node_status,
    pod_status,
    service_status,
)
from proxylab.errors import ProgramError
from proxylab.timing import together

_AT_ONCE: Final = 16


async def adopt(api: ApiClient, store: Store, is_own: Callable[[KubeObject], bool]) -> None:
    """Create the objects of the store that people see, except those that ``is_own`` names: the lab's.

    Raises:
        ProgramError: the API server refuses an object of the scenario.
    """
    version = (await api.request("GET", "/version"))["gitVersion"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    nodes = {each.name: each for each in store.list(Node)}
    services = [each for each in store.list(Service) if not is_own(each)]
    selecting = {(each.namespace, each.name) for each in services if each.selector}
    # A pod comes before the Services that select it, and so is in their first slices.
    await _create(api, [each for each in store.list(Namespace) if not is_own(each)])
    await _create(api, [*nodes.values()])
    for node in nodes.values():
        await api.request("PATCH", f"/api/v1/nodes/{node.name}/status", node_status(node, version, now), MERGE)
    pods = [each for each in store.list(Pod) if each.node_name in nodes and not is_own(each)]
    await _create(api, pods)
    for pod in pods:
        path = f"{collection_of(pod)}/{pod.name}/status"
        await api.request("PATCH", path, pod_status(pod, nodes[pod.node_name].addresses, now), MERGE)
    await _create(api, services)
    for service in services:
        if service.load_balancer_ingress:
            await api.request(
                "PATCH", f"{collection_of(service)}/{service.name}/status", service_status(service), MERGE
            )
    slices = (each for each in store.list(EndpointSlice) if not is_own(each))
    await _create(api, [each for each in slices if (each.namespace, each.service) not in selecting])


async def _create(api: ApiClient, things: Sequence[KubeObject]) -> None:
    for first in range(0, len(things), _AT_ONCE):
        await together(_create_one(api, each) for each in things[first : first + _AT_ONCE])


async def _create_one(api: ApiClient, thing: KubeObject) -> None:
    try:
        await api.request("POST", collection_of(thing), created(thing))
    except ApiRefusedError as error:
        if error.status != HTTPStatus.CONFLICT:  # such as the namespaces that every cluster has
            raise ProgramError("kube-apiserver", f"refuses {thing.key}: {error.message}") from error
