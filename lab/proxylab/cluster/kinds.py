"""The kinds of objects that the lab keeps as they are written, and that its API serves so.

The module owns their table: names, versions, and which have a namespace. Kinds that a proxy reads have types of their
own in ``proxylab.cluster.objects``.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class KeptKind(Struct, frozen=True):
    """A kind: the group and version that serve it (``v1`` for the core group), and whether it has a namespace."""

    kind: str
    group_version: str
    namespaced: bool = True

    @property
    def plural(self) -> str:
        """Its name in paths."""
        return plural_of(self.kind)


_NAMESPACED: Final[Mapping[str, str]] = {
    "v1": "ConfigMap Secret ServiceAccount PersistentVolumeClaim ReplicationController ResourceQuota LimitRange "
    "PodTemplate",
    "apps/v1": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "batch/v1": "CronJob Job",
    "coordination.k8s.io/v1": "Lease",
    "gateway.networking.k8s.io/v1": "Gateway HTTPRoute",
    "networking.k8s.io/v1": "Ingress NetworkPolicy",
    "policy/v1": "PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding",
}
_OF_THE_CLUSTER: Final[Mapping[str, str]] = {
    "v1": "PersistentVolume",
    "admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingWebhookConfiguration "
    "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "apiregistration.k8s.io/v1": "APIService",
    "certificates.k8s.io/v1": "CertificateSigningRequest",
    "gateway.networking.k8s.io/v1": "GatewayClass",
    "networking.k8s.io/v1": "IngressClass IPAddress",
    "node.k8s.io/v1": "RuntimeClass",
    "policy/v1beta1": "PodSecurityPolicy",
    "rbac.authorization.k8s.io/v1": "ClusterRole ClusterRoleBinding",
    "scheduling.k8s.io/v1": "PriorityClass",
    "storage.k8s.io/v1": "StorageClass CSIDriver CSINode VolumeAttachment",
}
KEPT_KINDS: Final = {
    kind: KeptKind(kind, group_version, namespaced)
    for namespaced, table in ((True, _NAMESPACED), (False, _OF_THE_CLUSTER))
    for group_version, kinds in table.items()
    for kind in kinds.split()
}
"""The kinds of Kubernetes' own groups, by name."""

SHORT_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(KEPT_KINDS, ()),
    "CertificateSigningRequest": ("csr",),
    "ConfigMap": ("cm",),
    "CronJob": ("cj",),
    "CustomResourceDefinition": ("crd", "crds"),
    "DaemonSet": ("ds",),
    "Deployment": ("deploy",),
    "HorizontalPodAutoscaler": ("hpa",),
    "Ingress": ("ing",),
    "IPAddress": ("ip",),
    "LimitRange": ("limits",),
    "NetworkPolicy": ("netpol",),
    "PersistentVolume": ("pv",),
    "PersistentVolumeClaim": ("pvc",),
    "PodDisruptionBudget": ("pdb",),
    "PriorityClass": ("pc",),
    "ReplicaSet": ("rs",),
    "ReplicationController": ("rc",),
    "ResourceQuota": ("quota",),
    "ServiceAccount": ("sa",),
    "StatefulSet": ("sts",),
    "StorageClass": ("sc",),
}
"""kubectl's short names of each."""

OLD_GROUP: Final = "extensions"
"""The group in which workloads, network policies and Ingresses began."""

_OWN_GROUPS: Final = {
    "discovery.k8s.io",
    "events.k8s.io",
    *(each.group_version.rpartition("/")[0] for each in KEPT_KINDS.values()),
}


def plural_of(kind: str) -> str:
    """The plural in lower case, as Kubernetes guesses it (UnsafeGuessKindToResource in apimachinery's api/meta).

    Example:
        >>> [plural_of(kind) for kind in ("ConfigMap", "NetworkPolicy", "StorageClass")]
        ['configmaps', 'networkpolicies', 'storageclasses']
    """
    singular = kind.lower()
    if singular.endswith("y"):
        return f"{singular[:-1]}ies"
    return f"{singular}es" if singular.endswith("s") else f"{singular}s"


def group_of(api_version: str) -> str:
    """The group of an ``apiVersion``; empty for the core group."""
    return api_version.rpartition("/")[0]


def is_custom(api_version: str) -> bool:
    """Whether the group is none of Kubernetes' own, so that a CustomResourceDefinition declares its kinds."""
    group = group_of(api_version)
    return "." in group and group not in _OWN_GROUPS


def kept_kind(kind: str, api_version: str) -> KeptKind | None:
    """The kind of an object that the lab keeps, in the version that the API serves; ``None`` for any other object.

    The API serves a kind of Kubernetes in one version, whichever version of its group the author wrote.
    """
    if is_custom(api_version):
        return KeptKind(kind, api_version)
    known = KEPT_KINDS.get(kind)
    groups = () if known is None else (group_of(known.group_version), OLD_GROUP)
    return known if group_of(api_version) in groups else None
