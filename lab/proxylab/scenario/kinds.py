"""Which kinds of objects a scenario file may hold, and the objects that the lab only keeps.

Kubernetes no longer serves some versions in which old manifests are written. The module reads these as the version that
is served, with a note. ``proxylab.scenario.manifests`` reads the objects that have an effect.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final

from msgspec import Struct

from proxylab.cluster.kinds import KEPT_KINDS, OLD_GROUP, group_of, is_custom, kept_kind
from proxylab.cluster.objects import Unstructured
from proxylab.scenario.controllers import WORKLOADS
from proxylab.scenario.document import Location, Problems, describe, shown
from proxylab.scenario.keys import Key, Manifest
from proxylab.scenario.reading import read
from proxylab.scenario.services import ObjectMetadata

_TYPED: Final = {
    "Service": "v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "Pod": "v1",
    "Node": "v1",
    "Namespace": "v1",
    "Endpoints": "v1",
    "Ingress": "networking.k8s.io/v1",
    "ServiceCIDR": "networking.k8s.io/v1",
    "List": "v1",
}
"""The kinds that the lab reads, with the versions that Kubernetes serves."""

_HOOK: Final = "helm.sh/hook"

ROUTING_KINDS: Final = frozenset({"Gateway", "GatewayClass", "HTTPRoute", "Ingress", "IngressClass"})
"""The kinds that only a controller of Ingresses reads."""


class Definition(Struct, frozen=True):
    """A custom kind, with its group: its plural, and whether its objects have a namespace."""

    kind: str
    plural: str
    namespaced: bool


class AnyManifest(Manifest, frozen=True, kw_only=True):
    """An object of which the lab reads only the metadata."""

    loose = True

    api_version: Annotated[str, Key("The version.")]
    kind: Annotated[str, Key("The kind.")]
    metadata: Annotated[ObjectMetadata, Key("Its name, namespace, labels and annotations.")]


def kind_of(location: Location, problems: Problems, inside: str = "") -> str | None:
    """The kind of the object at ``location``, or ``None`` after noting a problem.

    A custom kind ends in its group, such as ``Service.serving.knative.dev``.
    """
    value = location.value
    if not isinstance(value, dict):
        problems.add(location.spot, f"must be a Kubernetes object, is {describe(value)}")
        return None
    kind, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        absent = "kind" if not isinstance(kind, str) else "apiVersion"
        problems.add(
            location[absent].spot, "is missing or not text", allowed="every object has an apiVersion and a kind"
        )
        return None
    if is_custom(version):
        return f"{kind}.{group_of(version)}"
    name = "List" if kind.endswith("List") and isinstance(value.get("items"), list) else kind
    served = _served(name)
    if name != inside and (version == served or name == "List" or _is_older(version, served)):
        return name
    _refuse(location, name, version, problems, inside)
    return None


def _served(kind: str) -> str:
    """The version of a kind that Kubernetes serves; empty for an unknown kind."""
    return _TYPED.get(kind) or (KEPT_KINDS[kind].group_version if kind in KEPT_KINDS else "")


def _is_older(version: str, served: str) -> bool:
    """Whether it is another version of the group, or of the group in which many kinds began."""
    groups = (group_of(served), OLD_GROUP)
    return bool(served) and bool(group_of(version)) and group_of(version) in groups


def _refuse(location: Location, kind: str, version: str, problems: Problems, inside: str) -> None:
    spot = location["kind"].spot
    known = [each for each in _TYPED if each != inside]
    if not inside:
        known = ["Scenario", *known, "KubeProxyConfiguration"]
    allowed = f"allowed: {', '.join(known)}, and other kinds of Kubernetes, which the lab only keeps"
    if kind == inside:
        problems.add(spot, f"a {kind} may not hold a {kind}", allowed=f"allowed: {', '.join(known)}")
    elif not _served(kind):
        what = f"the kind {shown(kind)} is unknown"
        problems.add(spot, what, allowed=allowed, word=kind, known=[*known, *KEPT_KINDS])
    else:
        problems.add(
            location["apiVersion"].spot, f"{shown(version)} has no {kind}", allowed=f"allowed: {_served(kind)}"
        )


def items_of(location: Location) -> Iterator[Location]:
    """The objects of a List."""
    yield from (location["items"][index] for index in location["items"].keys)


def old_version(kind: str, location: Location) -> str:
    """A note if Kubernetes no longer serves the version of the object at ``location``; empty if it does."""
    version, served = location["apiVersion"].value, _served(kind)
    if kind == "List" or not served or version == served:
        return ""
    return (
        f"{kind} {location['metadata']['name'].value}: Kubernetes serves {served}, and the lab reads {version} as that"
    )


def is_hook(location: Location) -> bool:
    """Whether the object at ``location`` is a hook of helm: the cluster has it only while helm runs a test or a job."""
    return location["metadata"]["annotations"][_HOOK].exists


def definition(location: Location) -> Definition | None:
    """What a CustomResourceDefinition at ``location`` says; ``None`` if it is not well-formed."""
    spec = location["spec"]
    group, kind, plural = (each.value for each in (spec["group"], spec["names"]["kind"], spec["names"]["plural"]))
    if not (isinstance(group, str) and isinstance(kind, str) and isinstance(plural, str)):
        return None
    return Definition(f"{kind}.{group}", plural, spec["scope"].value != "Cluster")


def unstructured(location: Location, definitions: Mapping[str, Definition], problems: Problems) -> Unstructured | None:
    """The object at ``location``, of any kind; ``None`` after noting a mistake in its metadata.

    ``definitions`` are those of custom kinds, by kind and group.
    """
    kind, version = str(location["kind"].value), str(location["apiVersion"].value)
    manifest, served = read(AnyManifest, location, problems), kept_kind(kind, version)
    if manifest is None or served is None or not isinstance(location.value, dict):
        return None
    own = definitions.get(f"{kind}.{group_of(version)}", Definition(kind, served.plural, served.namespaced))
    metadata = manifest.metadata
    content = {key: value for key, value in location.value.items() if key != "metadata"}
    return Unstructured(
        api_version=served.group_version,
        kind=kind,
        plural=own.plural,
        namespace=metadata.namespace if own.namespaced else "",
        name=metadata.name,
        labels=metadata.labels,
        annotations=metadata.annotations,
        content={**content, "apiVersion": served.group_version},
    )


def note_on(kept: Iterable[Unstructured], *, routed: bool) -> str:
    """The note on those of the objects that have no effect; empty if there are none.

    ``routed`` says that a pod runs a controller for Ingresses and HTTPRoutes.
    """
    with_effect = {*WORKLOADS, *(ROUTING_KINDS if routed else ())}
    numbers = Counter(each.key.kind for each in kept if each.kind not in with_effect)
    shown_kinds = (f"{number} {kind}" for kind, number in sorted(numbers.items()))
    return f"the API serves them, and they have no effect here: {', '.join(shown_kinds)}" if numbers else ""
