"""Deployment, ReplicaSet, StatefulSet, DaemonSet and Job as an author, helm or kubectl writes them.

The records have the keys that decide how many pods there are, where they run and how they are replaced, with the API
server's defaults, and accept all others. ``proxylab.cluster.workloads`` makes the pods.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import field

from proxylab.cluster.workloads import PodTemplate, Workload, revision_of
from proxylab.scenario.document import Location, Problems, describe
from proxylab.scenario.keys import Between, Key, Read, refused
from proxylab.scenario.pod_spec import LabelSelector, Loose, PodSpec, Seconds
from proxylab.scenario.services import ObjectMetadata
from proxylab.scenario.syntax import Labels

WORKLOADS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
_MOST_PODS: Final = Between(0, 1000)


class _Strategy(StrEnum):
    """``type`` of the strategy of an update."""

    ROLLING = "RollingUpdate"
    RECREATE = "Recreate"
    ON_DELETE = "OnDelete"


class _Management(StrEnum):
    """``podManagementPolicy``."""

    ORDERED = "OrderedReady"
    PARALLEL = "Parallel"


class _Completion(StrEnum):
    """``completionMode``."""

    NON_INDEXED = "NonIndexed"
    INDEXED = "Indexed"


def _share(value: object) -> object:
    """A number of pods, or a share of them in per cent."""
    text = value.removesuffix("%") if isinstance(value, str) and value.endswith("%") else ""
    if (isinstance(value, int) and not isinstance(value, bool) and value >= 0) or text.isdecimal():
        return value
    raise refused(f"must be a number or a percentage, is {describe(value)}", allowed="write it as 1 or 25%")


_Share = Annotated[int | str | None, Read(_share, int | str)]


class _RollingUpdate(Loose, frozen=True):
    """``rollingUpdate``."""

    max_surge: Annotated[_Share, Key("How many pods more there may be during an update.")] = None
    max_unavailable: Annotated[_Share, Key("How many pods fewer may be available during an update.")] = None
    partition: Annotated[int, _MOST_PODS, Key("The lowest ordinal of a StatefulSet that an update replaces.")] = 0


class _Update(Loose, frozen=True):
    """``strategy`` and ``updateStrategy``."""

    type: Annotated[_Strategy, Key("How an update replaces pods.")] = _Strategy.ROLLING
    rolling_update: Annotated[_RollingUpdate, Key("For RollingUpdate.")] = _RollingUpdate()


class _Ordinals(Loose, frozen=True):
    """``ordinals``."""

    start: Annotated[int, _MOST_PODS, Key("The first ordinal.")] = 0


class _TemplateMetadata(Loose, frozen=True):
    """``metadata`` of a template."""

    labels: Annotated[Labels, Key("The labels of the pods.")] = field(default_factory=dict)


class _Template(Loose, frozen=True):
    """``template``: what all pods have in common."""

    metadata: Annotated[_TemplateMetadata, Key("The labels of the pods.")] = _TemplateMetadata()
    spec: Annotated[PodSpec, Key("Where the pods run and listen.")] = PodSpec()


class _Spec(Loose, frozen=True, kw_only=True):
    """``spec`` of any of the kinds."""

    replicas: Annotated[int, _MOST_PODS, Key("How many pods there are.")] = 1
    selector: Annotated[LabelSelector, Key("The labels of its pods.")] = LabelSelector()
    template: Annotated[_Template, Key("What all pods have in common.")]
    strategy: Annotated[_Update, Key("How a Deployment replaces pods.")] = _Update()
    update_strategy: Annotated[_Update, Key("How a StatefulSet or DaemonSet replaces pods.")] = _Update()
    min_ready: Annotated[
        Seconds, Key("How long a pod must be ready before an update goes on.", alias="minReadySeconds")
    ] = 0
    service_name: Annotated[str, Key("The headless Service of a StatefulSet, under which pods have DNS names.")] = ""
    pod_management_policy: Annotated[
        _Management, Key("Whether a StatefulSet makes and deletes one pod after the other.")
    ] = _Management.ORDERED
    ordinals: Annotated[_Ordinals, Key("The numbers of a StatefulSet's pods.")] = _Ordinals()
    parallelism: Annotated[int, _MOST_PODS, Key("How many pods a Job has.")] = 1
    completions: Annotated[int | None, Key("How often a Job must complete.")] = None
    completion_mode: Annotated[_Completion, Key("Whether a Job's pods have indexes.")] = _Completion.NON_INDEXED
    suspend: Annotated[bool, Key("Whether a Job has no pods.")] = False


class WorkloadManifest(Loose, frozen=True, kw_only=True):
    """A Deployment, ReplicaSet, StatefulSet, DaemonSet or Job."""

    api_version: Annotated[str, Key("apps/v1 or batch/v1.")]
    kind: Annotated[str, Key("Its kind.")]
    metadata: Annotated[ObjectMetadata, Key("Its name, namespace, labels and annotations.")]
    spec: Annotated[_Spec, Key("How many pods there are, and what they are like.")]


def check_workload(manifest: WorkloadManifest, location: Location, problems: Problems) -> None:
    """Note a selector that does not select the pods of the template, which the API server refuses."""
    labels, selector = manifest.spec.template.metadata.labels, manifest.spec.selector
    if not all(each.holds(labels) for each in selector.requirements):
        spot = location["spec"]["template"]["metadata"]["labels"]
        what = f"do not satisfy the selector of {manifest.kind} {manifest.metadata.name}"
        problems.add(spot.spot, what, allowed="needed: the labels of spec.selector")


def workload_of(manifest: WorkloadManifest, location: Location) -> Workload:
    """The workload of the cluster."""
    kind, metadata, spec = manifest.kind, manifest.metadata, manifest.spec
    update = spec.strategy if kind == "Deployment" else spec.update_strategy
    rolling, usual = update.rolling_update, (1, 0) if kind == "DaemonSet" else ("25%", "25%")
    written = location["spec"]["template"].value
    return Workload(
        kind=kind,
        namespace=metadata.namespace,
        name=metadata.name,
        replicas=_replicas(kind, spec),
        template=_template(kind, spec, written if isinstance(written, dict) else {}),
        strategy=update.type,
        max_unavailable=usual[0] if rolling.max_unavailable is None else rolling.max_unavailable,
        max_surge=usual[1] if rolling.max_surge is None else rolling.max_surge,
        partition=rolling.partition,
        parallel=spec.pod_management_policy is _Management.PARALLEL,
        first=spec.ordinals.start,
        indexed=kind == "Job" and spec.completion_mode is _Completion.INDEXED,
        min_ready=spec.min_ready * 1000,
    )


def _replicas(kind: str, spec: _Spec) -> int:
    if kind != "Job":
        return spec.replicas
    wanted = spec.parallelism if spec.completions is None else min(spec.parallelism, spec.completions)
    return 0 if spec.suspend else wanted


def _template(kind: str, spec: _Spec, written: Mapping[str, Any]) -> PodTemplate:
    pod = spec.template.spec
    named = pod if pod.hostname and pod.subdomain else PodSpec()  # only with both has an endpoint a DNS name
    return PodTemplate(
        labels=spec.template.metadata.labels,
        ports=tuple(each.in_api for each in pod.ports),
        commands=tuple((*each.command, *each.args) if each.command else () for each in pod.running),
        host_network=pod.host_network,
        hostname=named.hostname if kind != "StatefulSet" else "",
        subdomain=named.subdomain if kind != "StatefulSet" else spec.service_name,
        constraints=pod.constraints,
        revision=revision_of(written),
        ready_after=pod.seconds_to_ready * 1000,
        grace=pod.grace * 1000,
    )
