"""Which endpoints an HTTP request goes to: Ingresses and HTTPRoutes, with Services and slices, as virtual hosts.

``routing`` reads the documents of today's versions, and ``choose`` says where a request goes; a controller does the
same by its own means. Sources: https://kubernetes.io/docs/concepts/services-networking/ingress/ for path types, and
https://gateway-api.sigs.k8s.io/reference/spec/ for HTTPRoute.

* Exact matches the path alone. Prefix matches element by element: ``/cart`` matches ``/cart/1`` and not ``/carts``.
* ImplementationSpecific is nginx's own prefix, which matches characters.
* The longest path wins, and Exact before Prefix. An exact host wins over a wildcard, and that over none.
* A wildcard of an Ingress stands for one label, and that of an HTTPRoute for one or more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import lcm
from typing import Any, Final

from msgspec import Struct, field

from proxylab.addresses import IPAddress
from proxylab.cluster.objects import EndpointSlice, Service, Unstructured

CONTROLLER: Final = "k8s.io/ingress-nginx"
"""The controller of the IngressClasses that the lab's nginx serves."""

_CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
_DEFAULT_ANNOTATION: Final = "ingressclass.kubernetes.io/is-default-class"


class PathMatching(StrEnum):
    """How a path is matched."""

    EXACT = "Exact"
    PREFIX = "Prefix"
    CHARACTERS = "ImplementationSpecific"


class Server(Struct, frozen=True, order=True):
    """An endpoint, and its share of the requests among the others of its route."""

    address: str
    port: int
    weight: int = 1


class PathRoute(Struct, frozen=True):
    """The requests to some paths of a host; without servers no endpoint is ready."""

    match: PathMatching
    path: str
    servers: tuple[Server, ...]

    def matches(self, path: str) -> bool:
        """Whether a request for ``path`` is one of them."""
        if self.match is PathMatching.EXACT:
            return path == self.path
        if self.match is PathMatching.CHARACTERS:
            return path.startswith(self.path)
        below = self.path.rstrip("/")
        return path == below or path.startswith(f"{below}/")

    @property
    def rank(self) -> tuple[int, ...]:
        """The route with the highest rank gets a request that several match."""
        length = len(self.path.rstrip("/") if self.match is PathMatching.PREFIX else self.path)
        return length, self.match is PathMatching.EXACT, self.match is PathMatching.PREFIX


class VirtualHost(Struct, frozen=True):
    """A host: its name, empty for every one; ``labels`` says whether its wildcard stands for several labels."""

    name: str
    routes: tuple[PathRoute, ...]
    default: tuple[Server, ...] | None = None
    tls: bool = False
    labels: bool = False

    def covers(self, host: str) -> bool:
        """Whether a request for ``host`` is for this one."""
        if not self.name.startswith("*."):
            return self.name in ("", host)
        label, _, parent = host.partition(".")
        return bool(label) and (parent == self.name[2:] or (self.labels and host.endswith(self.name[1:])))

    @property
    def rank(self) -> tuple[bool, int]:
        """The host with the highest rank gets a request that several cover."""
        return not self.name.startswith("*."), len(self.name)


class Routing(Struct, frozen=True):
    """All virtual hosts, by rank; ``default`` is where requests for other hosts and paths go."""

    hosts: tuple[VirtualHost, ...] = ()
    default: tuple[Server, ...] | None = None

    @property
    def tls_names(self) -> tuple[str, ...]:
        """The names that the certificate must have."""
        return tuple(each.name for each in self.hosts if each.tls and each.name)


def choose(routes: Routing, host: str, path: str) -> tuple[Server, ...] | None:
    """The servers of a request; empty where no endpoint is ready, ``None`` where nothing matches."""
    found = next((each for each in routes.hosts if each.name and each.covers(host)), None)
    found = found or next((each for each in routes.hosts if not each.name), None)
    if found is None:
        return routes.default
    fitting = [each for each in found.routes if each.matches(path)]
    if fitting:
        return max(fitting, key=lambda each: each.rank).servers
    return routes.default if found.default is None else found.default


def routing(
    kept: Iterable[Unstructured], services: Iterable[Service], slices: Sequence[EndpointSlice], versions: Sequence[int]
) -> Routing:
    """The virtual hosts of a cluster.

    The kept objects are the oldest first. ``versions`` are those of IP in which the controller reaches endpoints.
    """
    reader = _RouteReader(tuple(kept), services, slices, versions)
    return reader.read()


class _Host(Struct):
    """A virtual host in the making."""

    routes: dict[tuple[PathMatching, str], PathRoute] = field(default_factory=dict)
    default: tuple[Server, ...] | None = None
    tls: bool = False
    labels: bool = False


class _RouteReader:
    def __init__(
        self,
        kept: Sequence[Unstructured],
        services: Iterable[Service],
        slices: Sequence[EndpointSlice],
        versions: Sequence[int],
    ) -> None:
        self._kept = kept
        self._services = {(each.namespace, each.name): each for each in services}
        self._slices = slices
        self._versions = versions
        self._hosts: dict[str, _Host] = {}
        self._default: tuple[Server, ...] | None = None

    def read(self) -> Routing:
        for ingress in self._of("Ingress"):
            if self._is_served(ingress):
                self._read_ingress(ingress)
        secure = any(
            listener.get("protocol") == "HTTPS"
            for gateway in self._of("Gateway")
            for listener in gateway.content["spec"].get("listeners", ())
        )
        for route in self._of("HTTPRoute"):
            self._read_route(route, secure)
        hosts = [
            VirtualHost(name, tuple(each.routes.values()), each.default, each.tls, each.labels)
            for name, each in self._hosts.items()
        ]
        return Routing(tuple(sorted(hosts, key=lambda each: each.rank, reverse=True)), self._default)

    def _of(self, kind: str) -> Iterator[Unstructured]:
        return (each for each in self._kept if each.kind == kind)

    def _is_served(self, ingress: Unstructured) -> bool:
        """Whether its class is one of this controller's, or the default one; without any class, every Ingress is."""
        named = ingress.content["spec"].get("ingressClassName") or ingress.annotations.get(_CLASS_ANNOTATION, "")
        classes = {each.name: each for each in self._of("IngressClass")}
        if not classes:
            return True
        if named:
            return named in classes and classes[named].content.get("spec", {}).get("controller") == CONTROLLER
        return any(
            each.annotations.get(_DEFAULT_ANNOTATION) == "true" and each.content["spec"]["controller"] == CONTROLLER
            for each in classes.values()
        )

    def _read_ingress(self, ingress: Unstructured) -> None:
        spec, namespace = ingress.content["spec"], ingress.namespace
        default = self._servers(namespace, spec["defaultBackend"]) if "defaultBackend" in spec else None
        if default is not None and self._default is None and not spec.get("rules"):
            self._default = default
        secure = {host for each in spec.get("tls", ()) for host in each.get("hosts", ())}
        for rule in spec.get("rules", ()):
            name = rule.get("host", "")
            host = self._hosts.setdefault(name, _Host())
            host.default = default if host.default is None else host.default
            host.tls = host.tls or name in secure
            for path in rule["http"]["paths"]:
                match = PathMatching(path["pathType"])
                self._add(host, match, path["path"], self._servers(namespace, path["backend"]))

    def _read_route(self, route: Unstructured, secure: bool) -> None:
        spec = route.content["spec"]
        for name in spec.get("hostnames") or [""]:
            host = self._hosts.setdefault(name, _Host(labels=True))
            host.tls = host.tls or (secure and bool(name))
            for rule in spec.get("rules") or [{}]:
                servers = self._shared(route.namespace, rule.get("backendRefs") or ())
                for match in rule.get("matches") or [{}]:
                    path = match.get("path", {})
                    kind = PathMatching.EXACT if path.get("type") == "Exact" else PathMatching.PREFIX
                    self._add(host, kind, path.get("value", "/"), servers)

    @staticmethod
    def _add(host: _Host, match: PathMatching, path: str, servers: tuple[Server, ...]) -> None:
        """Add a route, unless an older object has one for the same paths."""
        same = (path.rstrip("/") or "/") if match is PathMatching.PREFIX else path
        host.routes.setdefault((match, same), PathRoute(match, same, servers))

    def _servers(self, namespace: str, backend: Mapping[str, Any]) -> tuple[Server, ...]:
        service = backend["service"]
        port = service["port"].get("name") or service["port"].get("number")
        return tuple(
            Server(str(address), number) for address, number in self._endpoints(namespace, service["name"], port)
        )

    def _shared(self, namespace: str, refs: Iterable[Mapping[str, Any]]) -> tuple[Server, ...]:
        """The endpoints of several Services, each Service with its weight, whatever the number of its endpoints."""
        found = [
            (ref.get("weight", 1), self._endpoints(ref.get("namespace") or namespace, ref["name"], ref["port"]))
            for ref in refs
        ]
        found = [(weight, endpoints) for weight, endpoints in found if weight and endpoints]
        parts = lcm(*(len(endpoints) for _, endpoints in found))
        return tuple(
            Server(str(address), port, weight * parts // len(endpoints))
            for weight, endpoints in found
            for address, port in endpoints
        )

    def _endpoints(self, namespace: str, name: str, wanted: object) -> list[tuple[IPAddress, int]]:
        """The ready endpoints of a Service's port, by its number or name; one address for each pod."""
        service = self._services.get((namespace, name))
        ports = () if service is None else [each.name for each in service.ports if wanted in (each.port, each.name)]
        found: dict[tuple[IPAddress, int], None] = {}
        for each in self._slices:
            if (each.namespace, each.service) != (namespace, name):
                continue
            numbers = [port.port for port in each.ports if port.name in ports]
            ready = [endpoint.addresses[0] for endpoint in each.endpoints if endpoint.ready]
            found.update(
                dict.fromkeys(
                    (address, number) for address in ready for number in numbers if address.version == self._version
                )
            )
        return sorted(found, key=lambda each: (int(each[0]), each[1]))

    @property
    def _version(self) -> int:
        """The version in which the controller dials endpoints: its first."""
        return self._versions[0]
