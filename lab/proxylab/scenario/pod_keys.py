"""The keys of a pod's spec that a lab ignores, and of which an author may expect an effect on the network.

Pods have hundreds of keys, such as images and volumes, and a note on each would hide those that matter: the keys of the
network, and keys that Kubernetes does not know, which are often misspelt.
"""

from collections.abc import Iterator
from typing import Any, Final

from proxylab.cluster.documents import SIDECAR
from proxylab.scenario.document import nearest

_OF_THE_NETWORK: Final = {
    "dnsConfig": "pods resolve names as spec.dns says",
    "hostAliases": "pods resolve names as spec.dns says",
}
_INIT_CONTAINER: Final = "a pod of the lab listens from its start on the ports of its containers"

# The fields of PodSpec, Container and ContainerPort in k8s.io/api v0.37 (core/v1/types.go).
_POD: Final = """
activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy enableServiceLinks
ephemeralContainers evictionResponders hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride
imagePullSecrets initContainers nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName
readinessGates resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates schedulingGroup
securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain
terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes workloadRef
"""
_CONTAINER: Final = """
args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy resources
restartPolicy restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath
terminationMessagePolicy tty volumeDevices volumeMounts workingDir
"""
_PORT: Final = "containerPort hostIP hostPort name protocol"


def notes_on_pod(owner: str, spec: object) -> Iterator[str]:
    """A note for each such key in ``spec`` of a pod or of a template; ``owner`` is the object that has it."""
    if not isinstance(spec, dict):
        return
    for key, why in _OF_THE_NETWORK.items():
        if spec.get(key):
            yield f"no effect: {key} of {owner}: {why}"
    if spec.get("dnsPolicy") in ("Default", "None"):
        yield f"no effect: dnsPolicy {spec['dnsPolicy']} of {owner}: pods resolve names as spec.dns says"
    yield from _unknown(spec, _POD, owner, "")
    if any(each.get("restartPolicy") != SIDECAR for each in _items(spec.get("initContainers"))):
        yield f"no effect: initContainers of {owner}: {_INIT_CONTAINER}"
    for key in ("initContainers", "containers"):
        for container in _items(spec.get(key)):
            yield from _unknown(container, _CONTAINER, owner, f"{key}[].")
            for port in _items(container.get("ports")):
                yield from _unknown(port, _PORT, owner, f"{key}[].ports[].")


def _unknown(written: dict[str, Any], keys: str, owner: str, path: str) -> Iterator[str]:
    known = keys.split()
    for key in (each for each in written if each not in known):
        meant = nearest(str(key), known)
        question = f"; did you mean {meant}?" if meant else ""
        yield f"no effect: {path}{key} of {owner}: Kubernetes has no such key{question}"


def _items(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
