"""Gives new Services of type LoadBalancer their addresses, from the pools of the lab's load balancers.

The router of the lab sends every address of a pool to the nodes already, so an address in the status of a Service is
all that is missing. A Service without one stays pending where the pools have none left, as in a cluster.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus

from proxylab.cluster.allocate import Pool, give_ingress
from proxylab.cluster.documents import Document, object_of
from proxylab.cluster.objects import ObjectKey, Service, ServiceType
from proxylab.control.kubernetes.api_client import ApiClient, ApiRefusedError
from proxylab.control.kubernetes.documents import MERGE, SERVICES, collection_of, service_status
from proxylab.control.kubernetes.following import Following
from proxylab.errors import ScenarioError


class LoadBalancers:
    """Follows the Services of one API.

    Args:
        pools: those of the lab, in the order in which they are used.
        is_written: whether the lab itself is about to write a Service, with its address.
    """

    def __init__(self, api: ApiClient, pools: Sequence[Pool], is_written: Callable[[ObjectKey], bool]) -> None:
        self._api = api
        self._pools = pools
        self._is_written = is_written
        self._services: dict[ObjectKey, Service] = {}
        self._following = Following(api, SERVICES, self._take_all, self._take)

    async def start(self) -> None:
        """Follow the Services until ``stop``. Raises ``OSError`` where the API server does not answer."""
        if self._pools:
            await self._following.start()

    async def stop(self) -> None:
        """Follow them no longer."""
        await self._following.stop()

    def raise_if_ended(self) -> None:
        """Raise ``ProgramError`` if the Services are followed no longer."""
        self._following.raise_if_ended()

    async def _take_all(self, documents: Sequence[Document]) -> None:
        self._services.clear()
        for each in documents:
            self._note(each)
        await self._give()

    async def _take(self, change: str, document: Document) -> None:
        if change == "DELETED":
            self._services.pop(object_of(Service, document).key, None)
        else:
            self._note(document)
        await self._give()  # what has gone may leave an address for one that waits

    def _note(self, document: Document) -> None:
        """Keep a Service that has, or is to get, an address of the pools: not one of another class of balancers."""
        service = object_of(Service, document)
        if service.type is ServiceType.LOAD_BALANCER and "loadBalancerClass" not in document["spec"]:
            self._services[service.key] = service
        else:
            self._services.pop(service.key, None)

    async def _give(self) -> None:
        for service in tuple(self._services.values()):
            if self._is_written(service.key):
                continue
            held = [each for each in self._services.values() if each.load_balancer_ingress and each is not service]
            try:
                (*_, given) = give_ingress([*held, service], self._pools)
            except ScenarioError:  # none is left
                continue
            if given == service:
                continue
            path = f"{collection_of(given)}/{given.name}/status"
            try:
                await self._api.request("PATCH", path, service_status(given), MERGE)
            except ApiRefusedError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
            self._services[given.key] = given
