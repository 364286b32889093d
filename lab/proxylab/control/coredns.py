"""CoreDNS in the pods that serve names: started on a Corefile, and followed until it has caught up with the API.

CoreDNS watches Services and EndpointSlices in two streams. After a change the lab adds a mark to each: an ExternalName,
and a hostname in the slice of a headless Service. Neither has rules. CoreDNS knows both names only when both streams
have brought them, and then it has all that came earlier. Each look asks for a mark that no look has asked for, since an
author's CoreDNS may cache that a name does not exist.
"""

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.kube_dns import DOMAIN
from proxylab.cluster.objects import Endpoint, EndpointSlice, KubeObject, Namespace, ObjectKey, Service, ServiceType
from proxylab.cluster.store import Store
from proxylab.control.apiserver import API_ADDRESS, API_PORT, ApiServer
from proxylab.control.pod_program import PodProgram
from proxylab.plan.resolved import Query
from proxylab.timing import Deadline, together

COREFILE: Final = "/run/Corefile"
_CONFIG: Final = """\
cluster.local in-addr.arpa ip6.arpa {
    errors
    kubernetes
}
"""
"""The lab has no upstream, so CoreDNS refuses other names than the cluster's."""

_PLUGIN: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?P<line>kubernetes\b[^{#\n]*?)[ \t]*(?P<block>\{)?[ \t]*(?:#.*)?$", re.M
)
_OWN_NAME: Final = re.compile(r"^[ \t]*nsid\b.*\n", re.M)
_HEADLESS: Final = "names"
_MARKS: Final = 16
"""More than the marks of one look at every name server."""
_ENDPOINT: Final = ip_address("192.0.0.10")  # RFC 7600 reserves 192.0.0.0/29 and its neighbours; no network has it
_ASK_SECONDS: Final = 2.0
_SETTLE_SECONDS: Final = 30.0


class NameServerPod(Struct, frozen=True):
    """A pod that serves names: its program, the pod's name, and an address of it."""

    program: PodProgram
    name: str
    address: IPAddress


def corefile_for(name: str, written: str = "") -> str:
    """The Corefile of the pod ``name``: the author's, or the lab's own, with the lab's API server in ``kubernetes``.

    An ``endpoint`` that the author wrote stays. An ``nsid`` gets the pod's name (RFC 5001): by it the lab tells the
    answers of the Service's pods from those of others.
    """
    endpoint = f"endpoint http://{API_ADDRESS}:{API_PORT}"

    def with_endpoint(found: re.Match[str]) -> str:
        indent, line = found["indent"], found["line"].rstrip()
        inside = f"{indent}{line} {{\n{indent}    {endpoint}"
        return inside if found["block"] else f"{inside}\n{indent}}}"

    unnamed = _OWN_NAME.sub("", written or _CONFIG)
    text = _PLUGIN.sub(lambda found: f"{found['indent']}nsid {name}\n{found[0]}", unnamed)
    return text if re.search(r"^\s*endpoint\s", text, re.M) else _PLUGIN.sub(with_endpoint, text)


class CoreDns:
    """The name servers of one lab.

    Args:
        corefile: the author's, or empty.
        api: the lab's API server, which listens in the namespace of each pod.
        namespace: the Kubernetes namespace of the lab's own objects.
    """

    def __init__(
        self, pods: Sequence[NameServerPod], binary: str, corefile: str, api: ApiServer, store: Store, namespace: str
    ) -> None:
        self._pods = tuple(pods)
        self._argv = (binary, "-conf", COREFILE)
        self._corefile = corefile
        self._api = api
        self._store = store
        self._namespace = namespace
        self._number = 0
        self._revision = -1

    async def start(self) -> None:
        """Start CoreDNS in each pod, and return when all know the cluster.

        Raises:
            ProgramError: one does not start, such as with a wrong Corefile, or did not catch up in time.
            EngineError: the API server cannot listen in a pod.
        """
        self._store.apply(Namespace(name=self._namespace))
        for pod in self._pods:
            await self._api.listen(pod.program.netns)
            await pod.program.start(self._argv, {COREFILE: corefile_for(pod.name, self._corefile)})
        await self.settle()

    async def settle(self) -> None:
        """Return when all reflect the store as it is now. Raises ``ProgramError``."""
        if self._store.revision == self._revision:
            return
        deadline = Deadline.after(_SETTLE_SECONDS)
        await together(self._wait(pod, deadline) for pod in self._pods)
        self._revision = self._store.revision

    async def raise_if_ended(self) -> None:
        """Raise ``ProgramError`` if one of them has ended."""
        for pod in self._pods:
            await pod.program.raise_if_ended()

    async def stop(self) -> None:
        """End all of them."""
        await together(pod.program.stop() for pod in self._pods)

    def _mark(self) -> str:
        """Add a mark, and remove the oldest."""
        self._number += 1
        names = [f"n{number:06}" for number in range(max(1, self._number - _MARKS), self._number + 1)]
        if len(names) > _MARKS:
            self._store.delete(ObjectKey("Service", self._namespace, names.pop(0)))
        for thing in _objects(names, self._namespace):
            self._store.apply(thing)
        return names[-1]

    async def _wait(self, pod: NameServerPod, deadline: Deadline) -> None:
        from proxylab.control.dns_client import ask  # noqa: PLC0415 - 60 ms of dnspython, for labs with names

        below = f"{self._namespace}.svc.{DOMAIN}"

        next_mark = self._mark()

        async def knows(name: str, kind: str) -> bool:
            query = Query(name=f"{name}.{below}", kind=kind, server=pod.address)
            lookup = await ask(pod.program.netns, query, Deadline.after(_ASK_SECONDS))
            return bool(lookup.answers)

        async def caught_up() -> bool:
            nonlocal next_mark
            mark, next_mark = next_mark, self._mark()
            return await knows(mark, "CNAME") and await knows(f"{mark}.{_HEADLESS}", "A")

        await pod.program.wait(caught_up, deadline, "answers that reflect all changes of the cluster")


def _objects(names: Sequence[str], namespace: str) -> Iterator[KubeObject]:
    for name in names:
        yield Service(namespace=namespace, name=name, type=ServiceType.EXTERNAL_NAME, external_name="mark.invalid")
    yield Service(namespace=namespace, name=_HEADLESS, headless=True, ip_families=(Family.IPV4,))
    yield EndpointSlice(
        namespace=namespace,
        name=f"{_HEADLESS}-ipv4",
        service=_HEADLESS,
        address_type=Family.IPV4,
        endpoints=tuple(Endpoint(addresses=(_ENDPOINT,), hostname=name) for name in names),
    )
