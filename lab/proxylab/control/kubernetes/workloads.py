"""The workloads of a real API: those of a scenario handed to their controllers, and what controllers have yet to do.

A scenario's pods exist before their workloads. A controller takes up pods that its selector matches and that no other
one controls, and counts them as its own. So a Deployment comes with the ReplicaSet of the pods' own hash, in whose
template the Deployment finds its own. StatefulSets and DaemonSets go by the names of revisions, which only their
controllers know: they begin with OnDelete, under which pods of another revision stay, until their pods have that name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxylab.cluster.documents import Document, object_of
from proxylab.cluster.objects import ObjectKey, Pod, Service, Unstructured
from proxylab.cluster.store import Store
from proxylab.cluster.workloads import pods_of
from proxylab.control.kubernetes.api_client import ApiClient, ApiRefusedError
from proxylab.control.kubernetes.documents import FINALIZER, MERGE, PODS, SERVICES, created, pod_of
from proxylab.errors import ProgramError
from proxylab.timing import Deadline, DeadlineExceededError, pass_by, wait_until_seen

_APPS: Final = "/apis/apps/v1"
WORKLOADS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
_REST_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05
_ADOPT_SECONDS: Final = 30.0
_HASH: Final = "pod-template-hash"
_REVISION: Final = "controller-revision-hash"


class Workloads:
    """The workloads of one API, which ``store`` mirrors."""

    def __init__(self, api: ApiClient, store: Store) -> None:
        self._api = api
        self._store = store

    async def take_over(self) -> None:
        """Create the workloads of the store, whose pods are there, and return when controllers count these as theirs.

        Raises:
            ProgramError: the API server refuses one, or its controller makes other pods.
        """
        taken = False
        for each in self._store.list(Unstructured):
            if each.kind not in WORKLOADS:
                continue
            taken = True
            pods = pods_of(each, self._store.list(Pod))
            try:
                match each.kind:
                    case "Deployment":
                        await self._make_deployment(each, pods)
                    case "ReplicaSet":
                        await self._create(each, _document(each))
                    case _:
                        await self._make_with_revision(each, pods)
            except ApiRefusedError as error:
                raise ProgramError("kube-apiserver", f"refuses {each.key}: {error.message}") from error
        if taken:
            await self.come_to_rest()

    async def come_to_rest(self, seconds: float = _REST_SECONDS) -> None:
        """Return when each workload has the pods that it wants, none is about to go, and the store has them all.

        Raises ``ProgramError`` where something is left to do for too long.
        """
        deadline, left, before = Deadline.after(seconds), "", ""

        async def is_at_rest() -> bool:
            nonlocal left, before
            await pass_by(_LOOK_SECONDS)  # a look costs the API server a few ms
            left, now = await self._left()
            # A controller may be about to begin; what it has to do shows in the next look.
            still, before = now == before, now
            return still and not left

        try:
            await wait_until_seen(is_at_rest, deadline, "the controllers to come to rest")
        except DeadlineExceededError:
            words = f"has not come to rest after {seconds:.0f} s: {left or 'something changes all the time'}"
            raise ProgramError("the control plane", words) from None

    async def _left(self) -> tuple[str, str]:
        """The first thing that is left to do, or empty; and the versions of all that was looked at."""
        found: list[str] = []
        versions: list[str] = []
        for kind in WORKLOADS:
            for each in await self._all(f"{_APPS}/{kind.lower()}s", versions):
                metadata, status = each["metadata"], each.get("status", {})
                has_seen = status.get("observedGeneration", 0) >= metadata.get("generation", 0)
                wanted, counts = _counts(kind, each["spec"], status)
                if not has_seen or set(counts) != {wanted}:
                    found.append(f"{kind} {_name(each)} has {counts[0]} of {wanted} pods ready")
        found += filter(None, map(self._of_pod, await self._all(PODS, versions)))
        found += (
            f"the lab has not heard of Service {_name(each)}"
            for each in await self._all(SERVICES, versions)
            if self._store.get(ObjectKey("Service", *_key(each))) != object_of(Service, each)
        )
        return next(iter(found), ""), " ".join(versions)

    def _of_pod(self, pod: Document) -> str:
        metadata, status = pod["metadata"], pod.get("status", {})
        if "deletionTimestamp" in metadata:
            return "" if FINALIZER in metadata.get("finalizers", ()) else f"Pod {_name(pod)} is about to go"
        if status.get("phase") == "Pending" and pod["spec"].get("nodeName"):
            waiting = (each.get("state", {}).get("waiting", {}) for each in status.get("containerStatuses", ()))
            why = "; ".join(dict.fromkeys(each["message"] for each in waiting if "message" in each))
            return f"Pod {_name(pod)} does not run yet{f': {why}' if why else ''}"
        if status.get("phase") == "Pending" and not any(map(_is_unschedulable, status.get("conditions", ()))):
            return f"Pod {_name(pod)} has no node yet"
        if (found := pod_of(pod)) is not None and self._store.get(found.key) != found:
            return f"the lab has not heard of Pod {_name(pod)}"
        return ""

    async def _all(self, path: str, versions: list[str]) -> Sequence[Document]:
        items: Sequence[Document] = (await self._api.request("GET", path))["items"] or ()
        versions += (f"{each['metadata']['uid']}/{each['metadata']['resourceVersion']}" for each in items)
        return items

    async def _make_deployment(self, written: Unstructured, pods: Sequence[Pod]) -> None:
        if revision := next((each.labels[_HASH] for each in pods if _HASH in each.labels), ""):
            own = _document(written)
            spec, template = own["spec"], own["spec"]["template"]
            labels = {**template["metadata"].get("labels", {}), _HASH: revision}
            replica_set = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {
                    "namespace": written.namespace,
                    "name": f"{written.name}-{revision}",
                    "labels": labels,
                    "annotations": {"deployment.kubernetes.io/revision": "1"},
                },
                "spec": {
                    "replicas": spec.get("replicas", 1),
                    "selector": {
                        **spec["selector"],
                        "matchLabels": {**spec["selector"].get("matchLabels", {}), _HASH: revision},
                    },
                    "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
                },
            }
            await self._api.request("POST", f"{_APPS}/namespaces/{written.namespace}/replicasets", replica_set)
        await self._create(written, _document(written))

    async def _make_with_revision(self, written: Unstructured, pods: Sequence[Pod]) -> None:
        """Make a StatefulSet or DaemonSet, and give its pods the name of the revision that its controller makes."""
        document = _document(written)
        strategy = document["spec"].get("updateStrategy", {"type": "RollingUpdate"})
        document["spec"] = {**document["spec"], "updateStrategy": {"type": "OnDelete"}}
        path, uid = await self._create(written, document)
        revision = ""

        async def is_known() -> bool:
            nonlocal revision
            await pass_by(_LOOK_SECONDS)
            revisions = f"{_APPS}/namespaces/{written.namespace}/controllerrevisions"
            for each in (await self._api.request("GET", revisions))["items"] or ():
                if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences", ())):
                    # Pods of a StatefulSet have the revision's name, those of a DaemonSet its hash.
                    is_daemon = written.kind == "DaemonSet"
                    revision = each["metadata"]["labels"][_REVISION] if is_daemon else each["metadata"]["name"]
            return bool(revision)

        try:
            await wait_until_seen(is_known, Deadline.after(_ADOPT_SECONDS), f"a revision of {written.key}")
        except DeadlineExceededError as late:
            raise ProgramError("the control plane", str(late)) from None
        labels = {_REVISION: revision, **({"pod-template-generation": "1"} if written.kind == "DaemonSet" else {})}
        for pod in pods:
            pod_path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            await self._api.request("PATCH", pod_path, {"metadata": {"labels": labels}}, MERGE)
        rolling = {"rollingUpdate": None, **strategy}  # a merge patch keeps no part of the one before
        await self._api.request("PATCH", path, {"spec": {"updateStrategy": rolling}}, MERGE)

    async def _create(self, written: Unstructured, document: Document) -> tuple[str, str]:
        """Create a workload; returns its path and its uid."""
        collection = f"/apis/{written.api_version}/namespaces/{written.namespace}/{written.plural}"
        made = await self._api.request("POST", collection, document)
        return f"{collection}/{written.name}", made["metadata"]["uid"]


def _document(written: Unstructured) -> Document:
    """The document by which a workload of the store is created."""
    return {key: value for key, value in created(written).items() if key != "status"}


def _key(document: Document) -> tuple[str, str]:
    return document["metadata"]["namespace"], document["metadata"]["name"]


def _name(document: Document) -> str:
    return "/".join(_key(document))


def _is_unschedulable(condition: Mapping[str, Any]) -> bool:
    return (condition["type"], condition.get("reason")) == ("PodScheduled", "Unschedulable")


def _counts(kind: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[int, Sequence[int]]:
    """How many pods a workload wants, and the numbers of its pods that must come to that: the ready ones first."""
    if kind == "DaemonSet":
        names = ["numberReady", "currentNumberScheduled", "updatedNumberScheduled"]
        wanted = status.get("desiredNumberScheduled", 0)
    else:
        names, wanted = ["readyReplicas", "replicas", "updatedReplicas"], spec.get("replicas", 1)
    strategy = spec.get("updateStrategy", {})
    leaves_old = strategy.get("type") == "OnDelete" or strategy.get("rollingUpdate", {}).get("partition")
    if kind == "ReplicaSet" or leaves_old or spec.get("paused"):
        names.pop()
    return wanted, [status.get(name, 0) for name in names]
