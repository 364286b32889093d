"""Ingress and HTTPRoute as authors write them, and the documents of today's versions that the lab keeps of them.

The records have the keys that the lab's controller reads (``proxylab.cluster.http_routes``). Old Ingresses, of
``extensions/v1beta1`` and ``networking.k8s.io/v1beta1``, name the Service by ``serviceName`` and ``servicePort``.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from msgspec import field

from proxylab.scenario.document import Location, Problems, shown
from proxylab.scenario.keys import NOT_EMPTY, Between, Check, Key, Manifest, refused
from proxylab.scenario.services import ObjectMetadata
from proxylab.scenario.syntax import PortNumber, PortReference, is_subdomain

_REWRITES = "The lab's controller does not rewrite requests."


class _PathType(StrEnum):
    """``pathType``."""

    EXACT = "Exact"
    PREFIX = "Prefix"
    IMPLEMENTATION_SPECIFIC = "ImplementationSpecific"


class _MatchType(StrEnum):
    """``type`` of a path match; RegularExpression is optional in Gateway API."""

    EXACT = "Exact"
    PATH_PREFIX = "PathPrefix"


def _host(text: str) -> str:
    """A DNS name, whose first label may be ``*``; empty for every host."""
    if text and not is_subdomain(text.removeprefix("*.")):
        raise refused(f"{shown(text)} is not a host", allowed="allowed: a DNS name such as shop.example, or *.example")
    return text


def _path(text: str) -> str:
    if text and not (text.startswith("/") and text.isascii() and text.isprintable() and not set(text) & set(' "{};\\')):
        raise refused(f"{shown(text)} is not a path", allowed="allowed: a path that begins with /")
    return text


_Host = Annotated[str, Check(_host)]
_Path = Annotated[str, Check(_path)]


class _IngressPort(Manifest, frozen=True):
    """``port`` of a Service: a number or a name."""

    number: Annotated[PortNumber | None, Key("The port's number.")] = None
    name: Annotated[str, Key("The port's name.")] = ""


class _Service(Manifest, frozen=True):
    """``service`` of a backend."""

    name: Annotated[str, Key("The Service, in the namespace of the Ingress.")]
    port: Annotated[_IngressPort, Key("Its port.")] = _IngressPort()


class _IngressBackend(Manifest, frozen=True, kw_only=True):
    """Where requests go."""

    without_effect: ClassVar[Mapping[str, str]] = {"resource": "Another object than a Service; the lab has none."}

    service: Annotated[_Service | None, Key("The Service.")] = None
    service_name: Annotated[str, Key("The Service, before networking.k8s.io/v1.")] = ""
    service_port: Annotated[PortReference | None, Key("Its port, before networking.k8s.io/v1.")] = None

    @property
    def content(self) -> dict[str, Any]:
        """The document of networking.k8s.io/v1."""
        if self.service is not None:
            name, port = self.service.name, self.service.port.name or self.service.port.number
        else:
            name, port = self.service_name, self.service_port
        return {"service": {"name": name, "port": {"number" if isinstance(port, int) else "name": port}}}


class _HttpPath(Manifest, frozen=True, kw_only=True):
    """One entry of ``paths``."""

    path: Annotated[_Path, Key("The path of the request.")] = ""
    path_type: Annotated[_PathType | None, Key("How to match it; required in networking.k8s.io/v1.")] = None
    backend: Annotated[_IngressBackend, Key("Where its requests go.")]


class _Http(Manifest, frozen=True):
    """``http`` of a rule."""

    paths: Annotated[tuple[_HttpPath, ...], NOT_EMPTY, Key("Paths with their backends.")]


class _IngressRule(Manifest, frozen=True):
    """One entry of ``rules``."""

    host: Annotated[_Host, Key("The host of the request; every host by default.")] = ""
    http: Annotated[_Http | None, Key("Its paths.")] = None


class _Tls(Manifest, frozen=True):
    """One entry of ``tls``."""

    without_effect: ClassVar[Mapping[str, str]] = {"secretName": "The lab makes one certificate for all hosts."}

    hosts: Annotated[tuple[_Host, ...], Key("The hosts that are served over TLS.")] = ()


class _IngressSpec(Manifest, frozen=True, kw_only=True):
    """``spec`` of an Ingress."""

    ingress_class_name: Annotated[str, Key("The IngressClass, and so the controller.")] = ""
    default_backend: Annotated[_IngressBackend | None, Key("Where requests go that match no rule.")] = None
    backend: Annotated[_IngressBackend | None, Key("defaultBackend, before networking.k8s.io/v1.")] = None
    tls: Annotated[tuple[_Tls, ...], Key("The hosts that are served over TLS.")] = ()
    rules: Annotated[tuple[_IngressRule, ...], Key("Hosts with their paths.")] = ()


class IngressManifest(Manifest, frozen=True, kw_only=True):
    """An Ingress."""

    without_effect: ClassVar[Mapping[str, str]] = {"status": "Written by the controller."}

    api_version: Annotated[str, Key("networking.k8s.io/v1, or an older one.")]
    kind: Annotated[str, Key("Ingress.")]
    metadata: Annotated[ObjectMetadata, Key("Its name, namespace, labels and annotations.")]
    spec: Annotated[_IngressSpec, Key("The desired Ingress.")] = _IngressSpec()


def check_ingress(manifest: IngressManifest, location: Location, problems: Problems) -> None:
    """Note a path without a type, where today's version requires one, and a backend without a Service."""
    spec = location["spec"]
    today = manifest.api_version == "networking.k8s.io/v1"
    backends = [(spec["defaultBackend"], manifest.spec.default_backend), (spec["backend"], manifest.spec.backend)]
    for number, rule in enumerate(manifest.spec.rules):
        paths = spec["rules"][number]["http"]["paths"]
        for index, path in enumerate(rule.http.paths if rule.http else ()):
            backends.append((paths[index]["backend"], path.backend))
            if today and path.path_type is None:
                what = "is missing"
                problems.add(paths[index]["pathType"].key, what, allowed=f"allowed: {', '.join(_PathType)}")
            if not path.path and path.path_type not in (None, _PathType.IMPLEMENTATION_SPECIFIC):
                problems.add(paths[index]["path"].key, f"is missing: pathType is {path.path_type}", allowed="such as /")
    for at, backend in backends:
        if backend is None:
            continue
        named = bool(backend.service) if today else bool(backend.service or backend.service_name)
        if not named:
            key = "service" if today else "serviceName"
            problems.add(at[key].key, "is missing", allowed="name the Service to which requests go")
        elif backend.service and backend.service.port == _IngressPort():
            problems.add(at["service"]["port"].key, "is missing", allowed="give its number or its name")


def content_of_ingress(manifest: IngressManifest) -> dict[str, Any]:
    """The document without metadata, as networking.k8s.io/v1 has it."""
    spec = manifest.spec
    default = spec.default_backend or spec.backend
    content: dict[str, Any] = {
        **({"ingressClassName": spec.ingress_class_name} if spec.ingress_class_name else {}),
        **({"defaultBackend": default.content} if default else {}),
        **({"tls": [{"hosts": list(each.hosts)} for each in spec.tls]} if spec.tls else {}),
        "rules": [_content_of_rule(rule) for rule in spec.rules],
    }
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": content}


def _content_of_rule(rule: _IngressRule) -> dict[str, Any]:
    paths = [
        {
            "path": path.path or "/",
            "pathType": (path.path_type or _PathType.IMPLEMENTATION_SPECIFIC).value,
            "backend": path.backend.content,
        }
        for path in (rule.http.paths if rule.http else ())
    ]
    return {**({"host": rule.host} if rule.host else {}), "http": {"paths": paths}}


class _PathMatch(Manifest, frozen=True):
    """``path`` of a match."""

    type: Annotated[_MatchType, Key("How to match it.")] = _MatchType.PATH_PREFIX
    value: Annotated[_Path, Key("The path.")] = "/"


class _Match(Manifest, frozen=True):
    """One entry of ``matches``."""

    path: Annotated[_PathMatch, Key("The path of the request.")] = _PathMatch()


class _BackendRef(Manifest, frozen=True, kw_only=True):
    """One entry of ``backendRefs``."""

    without_effect: ClassVar[Mapping[str, str]] = dict.fromkeys(("kind", "group"), "The lab knows Services only.")

    name: Annotated[str, Key("The Service.")]
    namespace: Annotated[str, Key("Its namespace; that of the HTTPRoute by default.")] = ""
    port: Annotated[PortNumber, Key("Its port.")]
    weight: Annotated[Annotated[int, Between(0, 1_000_000)], Key("Its share of the requests, beside other ones.")] = 1


class _RouteRule(Manifest, frozen=True):
    """One entry of ``rules``."""

    without_effect: ClassVar[Mapping[str, str]] = {"name": "A name for policies.", "filters": _REWRITES}

    matches: Annotated[tuple[_Match, ...], Key("The requests; all by default.")] = ()
    backend_refs: Annotated[tuple[_BackendRef, ...], Key("The Services that share them.")] = ()


class _RouteSpec(Manifest, frozen=True):
    """``spec`` of an HTTPRoute."""

    parent_refs: Annotated[tuple[Any, ...], Key("The Gateways that it belongs to.")] = ()
    hostnames: Annotated[tuple[_Host, ...], Key("The hosts of the requests; all by default.")] = ()
    rules: Annotated[tuple[_RouteRule, ...], Key("Requests with their Services.")] = field(
        default_factory=lambda: (_RouteRule(),)
    )


class HttpRouteManifest(Manifest, frozen=True, kw_only=True):
    """A gateway.networking.k8s.io HTTPRoute."""

    without_effect: ClassVar[Mapping[str, str]] = {"status": "Written by the controller."}

    api_version: Annotated[str, Key("gateway.networking.k8s.io/v1.")]
    kind: Annotated[str, Key("HTTPRoute.")]
    metadata: Annotated[ObjectMetadata, Key("Its name and namespace.")]
    spec: Annotated[_RouteSpec, Key("The desired route.")] = field(default_factory=_RouteSpec)
