"""What a lab lists of a real API besides what its store mirrors, from an API that has what a test says."""

import asyncio
from collections.abc import Mapping
from typing import Any

from proxylab.control.kubernetes.api_client import ApiRefusedError
from proxylab.control.kubernetes.kept_objects import KeptObjects

DEPLOYMENT = {
    "metadata": {"namespace": "team", "name": "web", "resourceVersion": "17", "labels": {"app": "web"}},
    "spec": {"replicas": 2},
    "status": {"replicas": 1},
}


class Api:
    """An API with one Deployment, and without the group of Gateways."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def request(self, method: str, path: str) -> Mapping[str, Any]:
        self.asked.append(path)
        if "gateway.networking" in path:
            raise ApiRefusedError(f"{method} {path}", 404, "404 page not found")
        return {"items": [DEPLOYMENT] if path == "/apis/apps/v1/deployments" else None}


def test_it_asks_for_each_kind_that_the_store_does_not_mirror() -> None:
    api = Api()
    kept = KeptObjects(api, ())  # type: ignore[arg-type]  # all that is asked of a client
    ((thing, revision),) = asyncio.run(kept.now())
    assert (thing.key.namespace, thing.name, thing.kind, revision) == ("team", "web", "Deployment", 17)
    assert (thing.labels, thing.content["spec"]) == ({"app": "web"}, {"replicas": 2})
    assert (kept.has("Deployment"), kept.has("ConfigMap"), kept.has("Ingress")) == (True, True, False)
    assert {"/api/v1/configmaps", "/apis/apps/v1/statefulsets"} <= {*api.asked}
    assert not [each for each in api.asked if "ingress" in each]


def test_workloads_that_the_lab_itself_makes_are_not_those_of_the_api() -> None:
    api = Api()
    kept = KeptObjects(api, ("Deployment", "StatefulSet"))  # type: ignore[arg-type]  # all that is asked of a client
    assert asyncio.run(kept.now()) == []
    assert not kept.has("Deployment")
    assert not [each for each in api.asked if each.endswith(("deployments", "statefulsets"))]
