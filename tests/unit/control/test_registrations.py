"""What the kubelets of a lab report of their nodes, to an API that does what a test says."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from msgspec.structs import replace

from proxylab.cluster.documents import Document
from proxylab.cluster.objects import Node
from proxylab.control.kubernetes.api_client import ApiRefusedError
from proxylab.control.kubernetes.documents import created
from proxylab.control.kubernetes.registrations import Registrations
from proxylab.timing import Deadline, wait_until

NODE = Node(
    name="node-a",
    labels={"zone": "a"},
    addresses=(ip_address("172.18.0.2"),),
    pod_cidrs=(ip_network("10.244.0.0/24"),),
)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Api:
    """An API with these nodes and no Lease. It keeps what it is told, and shows the changes that ``say`` gives."""

    def __init__(self, *nodes: Document) -> None:
        self._nodes = nodes
        self._changes: asyncio.Queue[Document] = asyncio.Queue()
        self.leases: dict[str, Document] = {}
        self.patches: list[tuple[str, Document]] = []

    async def request(
        self, method: str, path: str, body: Document | None = None, kind: str = "application/json"
    ) -> Mapping[str, Any]:
        name = path.removeprefix(f"{LEASES}/")
        match method, path:
            case "GET", "/version":
                return {"gitVersion": "v1.37.2"}
            case "GET", _:
                return {"metadata": {"resourceVersion": "1"}, "items": list(self._nodes)}
            case "PATCH", _ if path.startswith(LEASES):
                if name not in self.leases:
                    raise ApiRefusedError(f"PATCH {path}", 404, "no such Lease")
                self.leases[name]["renewals"] += 1
            case "POST", _ if path == LEASES and body is not None:
                self.leases[body["metadata"]["name"]] = {**body, "renewals": 0}
            case "PATCH", _ if body is not None:
                self.patches.append((path, body))
        return {}

    async def watch(self, path: str, version: str) -> AsyncIterator[Document]:
        del path, version
        while True:
            yield await self._changes.get()

    def say(self, change: str, node: Document) -> None:
        self._changes.put_nowait({"type": change, "object": node})


def document(name: str = "node-a", uid: str = "one", **status: Any) -> Document:
    made = created(replace(NODE, name=name))
    return {**made, "metadata": {**made["metadata"], "uid": uid}, "status": status}


REPORTED = {"addresses": [{"type": "InternalIP", "address": "172.18.0.2"}]}


def test_a_node_that_is_reported_gets_a_lease_of_its_own_alone() -> None:
    async def story() -> None:
        api = Api(document(**REPORTED), document("stranger", "two"))
        registrations = Registrations(api, {"node-a": NODE})  # type: ignore[arg-type]  # all that is asked of a client
        await registrations.start()
        await wait_until(lambda: "node-a" in api.leases, Deadline.after(5), "a Lease")
        assert {*api.leases} == {"node-a"}
        lease = api.leases["node-a"]
        assert lease["metadata"]["ownerReferences"][0]["uid"] == "one"
        assert lease["spec"]["holderIdentity"] == "node-a"
        assert api.patches == []
        api.say("ADDED", document("node-a", "four", **REPORTED))  # as one that was deleted and made anew
        await wait_until(lambda: api.leases["node-a"]["renewals"] > 0, Deadline.after(5), "a renewal")
        await registrations.stop()

    asyncio.run(story())


def test_a_node_that_is_made_anew_is_reported_with_its_addresses_and_networks() -> None:
    async def story() -> None:
        api = Api()
        registrations = Registrations(api, {"node-a": NODE})  # type: ignore[arg-type]  # all that is asked of a client
        await registrations.start()
        bare = {"metadata": {"name": "node-a", "uid": "three", "labels": {"tier": "new"}}, "spec": {}, "status": {}}
        api.say("ADDED", bare)
        await wait_until(lambda: "node-a" in api.leases, Deadline.after(5), "a Lease")
        (path, patch), (of_status, status) = api.patches
        assert (path, of_status) == ("/api/v1/nodes/node-a", "/api/v1/nodes/node-a/status")
        assert patch["spec"] == {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]}
        assert patch["metadata"]["labels"] == {
            "kubernetes.io/hostname": "node-a",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "tier": "new",
        }
        assert status["status"]["addresses"][0] == REPORTED["addresses"][0]
        assert api.leases["node-a"]["metadata"]["ownerReferences"][0]["uid"] == "three"
        await registrations.stop()

    asyncio.run(story())
