"""The ports of pods whose containers declare none: Kubernetes does not need ``containerPort``, and neither does a lab.

``containerPort`` is information only, unless a Service names the port. So pods without any listen on the numeric
``targetPort`` of each Service that selects them.
"""

from collections.abc import Mapping

from proxylab.cluster.objects import PodPort
from proxylab.scenario.manifests import Manifests

__all__ = ["implied_ports", "note_on_ports"]

_Ports = Mapping[PodPort, str]


def implied_ports(manifests: Manifests, namespace: str, labels: Mapping[str, str]) -> _Ports:
    """The target ports of the Services that select pods with these labels, each with the Service that sends there."""
    found: dict[PodPort, str] = {}
    for (own, name), service in manifests.services.items():
        if service is None or own != namespace or not service.selector:
            continue
        if service.selector.items() <= labels.items():
            for port in (each for each in service.ports if isinstance(each.target_port, int)):
                found.setdefault(PodPort(name="", protocol=port.protocol, port=int(port.target_port)), name)
    return found


def note_on_ports(owner: str, ports: _Ports) -> str:
    """What the author may not expect: ``Deployment default/web declares no port: …``."""
    listed = ", ".join(f"{port.protocol} port {port.port} (Service {name})" for port, name in ports.items())
    return f"{owner} declares no port: in the lab it listens where Services send to, {listed}"
