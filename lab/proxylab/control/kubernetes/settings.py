"""The settings of the control plane: files in its private /run, flags of its components, and users' kubeconfigs.

Everyone who has the token may do everything, and no one else anything: with AlwaysAllow the API server refuses
anonymous requests. The controllers are those of workloads, Services, nodes and namespaces; those of storage,
certificates and clouds would have nothing to do.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxylab.addresses import IPNetwork

FOLDER: Final = "/run/kubernetes"
AUTHORITY: Final = f"{FOLDER}/authority.crt"
SETTINGS: Final = f"{FOLDER}/settings.json"
API_PORT: Final = 6443

_STORE_BYTES: Final = "1g"
"""The most that etcd may keep, in memory."""

_TOKENS: Final = f"{FOLDER}/tokens"
KUBECONFIG: Final = f"{FOLDER}/kubeconfig"
SCHEDULER: Final = (
    "kube-scheduler",
    f"--kubeconfig={KUBECONFIG}",
    "--leader-elect=false",
    "--secure-port=0",
    "--kube-api-qps=500",
    "--kube-api-burst=1000",
)
"""The arguments of the scheduler, a process of its own: it would take signals that the others have taken."""

_LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}
_LISTENS: Final = f"127.0.0.1:{API_PORT}"
_NO_ADMISSION: Final = ("ServiceAccount", "TaintNodesByCondition")
"""The first would let pods wait for the account of their namespace; the second taints each new node until the node
controller has seen it ready, and the nodes of a lab are ready when they come."""

_CONTROLLERS: Final = (
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
)


def settings_files(token: str, service_networks: Sequence[IPNetwork]) -> Mapping[str, str]:
    """The files that the program reads, by path. The primary family of Services is that of the first network."""
    settings = {
        "folder": FOLDER,
        "store": f"{FOLDER}/store",
        "size": _STORE_BYTES,
        "listens": _LISTENS,
        "apiServer": _api_server(service_networks),
        "controllerManager": _controller_manager(),
    }
    return {
        SETTINGS: json.dumps(settings, indent=2),
        _TOKENS: f'{token},admin,admin,"system:masters"\n',
        KUBECONFIG: json.dumps(kubeconfig("lab", f"https://{_LISTENS}", token, {"certificate-authority": AUTHORITY})),
    }


def kubeconfig(name: str, server: str, token: str, authority: Mapping[str, str]) -> dict[str, Any]:
    """A kubeconfig (https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/) with one context, called ``name``.

    ``authority`` is ``certificate-authority`` with a path, or ``certificate-authority-data``.
    """
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, **authority}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def _api_server(service_networks: Sequence[IPNetwork]) -> list[str]:
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        "--bind-address=127.0.0.1",
        f"--secure-port={API_PORT}",
        # The family of this address must be that of the first Service network; nothing dials it.
        f"--advertise-address={_LOOPBACK[service_networks[0].version]}",
        "--endpoint-reconciler-type=none",  # any other refuses a loopback address
        f"--service-cluster-ip-range={','.join(map(str, service_networks))}",
        f"--cert-dir={FOLDER}",
        f"--tls-cert-file={FOLDER}/server.crt",
        f"--tls-private-key-file={FOLDER}/server.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={FOLDER}/accounts.key",
        f"--service-account-signing-key-file={FOLDER}/accounts.key",
        f"--token-auth-file={_TOKENS}",
        "--authorization-mode=AlwaysAllow",
        "--kubelet-preferred-address-types=InternalIP",  # names of nodes have no records here
        f"--disable-admission-plugins={','.join(_NO_ADMISSION)}",
        "--enable-priority-and-fairness=false",
        "--profiling=false",
    ]


def _controller_manager() -> list[str]:
    return [
        f"--kubeconfig={KUBECONFIG}",
        f"--controllers={','.join(_CONTROLLERS)}",
        "--leader-elect=false",
        f"--service-account-private-key-file={FOLDER}/accounts.key",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--secure-port=0",
        "--controller-start-interval=0",
        # A lab process that a busy machine keeps waiting is no node that is gone; kubelets renew every ten seconds.
        "--node-monitor-grace-period=5m",
        # Both components of the process would take its signals, which panics.
        "--feature-gates=ControllerManagerReleaseLeaderElectionLockOnExit=false",
    ]
