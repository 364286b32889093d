"""Where an HTTP request goes, by the documents of the cluster; and that nginx' configuration says the same.

``served`` follows nginx' choice of a location: an exact one; or else a redirect to the same path with a slash; or else
the longest prefix. ``tests/kernel/test_ingress.py`` asks a real nginx.
"""

import re
from ipaddress import ip_address
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxylab.addresses import Family
from proxylab.cluster.http_routes import PathMatching, PathRoute, Routing, Server, VirtualHost, choose, routing
from proxylab.cluster.objects import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort, Unstructured
from proxylab.control.ingress.nginx_conf import NginxListen, nginx_conf

PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3).flatmap(
    lambda parts: st.sampled_from(["/" + "/".join(parts), "/" + "/".join(parts) + "/"]).filter(lambda p: "//" not in p)
)
ROUTES = st.lists(st.tuples(st.sampled_from(PathMatching), PATHS), max_size=6, unique=True)
HOSTS = ("", "a.example", "*.a.example", "*.b.a.example")


def normal(match: PathMatching, path: str) -> str:
    return (path.rstrip("/") or "/") if match is PathMatching.PREFIX else path


@st.composite
def routings(draw: st.DrawFn) -> Routing:
    """Hosts with routes, each to a server of its own."""
    number, hosts = 0, []
    for name in draw(st.lists(st.sampled_from(HOSTS), unique=True)):
        routes = {}
        for match, path in draw(ROUTES):
            number += 1
            same = normal(match, path)
            routes.setdefault((match, same), PathRoute(match, same, (Server(f"10.0.0.{number}", 80),)))
        default = (Server("10.1.0.1", 80),) if draw(st.booleans()) else None
        hosts.append(VirtualHost(name, tuple(routes.values()), default, labels=draw(st.booleans())))
    hosts.sort(key=lambda each: each.rank, reverse=True)
    return Routing(tuple(hosts), (Server("10.2.0.1", 80),) if draw(st.booleans()) else None)


def served(conf: str, host: str, path: str) -> str:
    """What nginx does with a request: the address of the only server, or the status that it returns."""
    blocks = [block for block in re.split(r"\n  server \{\n", conf)[1:] if "listen 80" in block]
    names = [re.search(r'server_name "(.*)";', block) for block in blocks]
    exact = [block for name, block in zip(names, blocks, strict=True) if name and name[1] == host]
    matching = [
        block
        for name, block in zip(names, blocks, strict=True)
        if name and name[1].startswith("~") and re.search(name[1][1:], host)
    ]
    default = [block for name, block in zip(names, blocks, strict=True) if name is None]
    (block, *_) = (*exact, *matching, *default)
    locations = re.findall(r'location (= )?"(.*)" \{ (.*) \}', block)
    found = {where: what for equal, where, what in locations if equal and where == path}
    if not found and any(where == f"{path}/" for _, where, _ in locations):
        return "301"
    found = found or {where: what for equal, where, what in locations if not equal and path.startswith(where)}
    best = max(found, key=len)
    if upstream := re.search(r"proxy_pass http://(u\d+);", found[best]):
        (members,) = re.findall(rf"upstream {upstream[1]} \{{\n(.*?)\n  \}}", conf, re.S)
        return re.findall(r"server ([\d.]+):80", members)[0]
    return re.findall(r"return (\d+);", found[best])[0]


@given(routings(), st.sampled_from(["a.example", "x.a.example", "b.a.example", "x.b.a.example", "other"]), PATHS)
def test_nginx_serves_what_the_rules_of_kubernetes_say(routes: Routing, host: str, path: str) -> None:
    due = choose(routes, host, path)
    conf = nginx_conf(routes, "pod", [NginxListen(80)], [4], 1)
    assert served(conf, host, path) == ("404" if due is None else due[0].address)


def service(name: str, *ports: ServicePort) -> Service:
    return Service(name=name, ports=ports or (ServicePort(port=80, target_port=8080),))


def slice_of(name: str, *addresses: str, port: str = "", unready: str = "") -> EndpointSlice:
    endpoints = [Endpoint(addresses=(ip_address(address),), ready=address != unready) for address in addresses]
    ports = (EndpointPort(name=port, port=8080),)
    return EndpointSlice(name=name, service=name, address_type=Family.IPV4, ports=ports, endpoints=tuple(endpoints))


def kept(kind: str, name: str, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> Unstructured:
    return Unstructured(
        api_version="v1",
        kind=kind,
        plural="",
        namespace="default",
        name=name,
        annotations=annotations or {},
        content={"spec": spec},
    )


def rule(host: str, path: str, name: str, match: str = "Prefix", port: object = 80) -> dict[str, Any]:
    named = {"name": port} if isinstance(port, str) else {"number": port}
    backend = {"service": {"name": name, "port": named}}
    return {"host": host, "http": {"paths": [{"path": path, "pathType": match, "backend": backend}]}}


def test_an_ingress_leads_to_the_ready_endpoints_of_the_named_port() -> None:
    services = [
        service(
            "web", ServicePort(name="http", port=80, target_port=8080), ServicePort(name="x", port=81, target_port=1)
        )
    ]
    slices = [slice_of("web", "10.0.0.1", "10.0.0.2", port="http", unready="10.0.0.2")]
    for port in ("http", 80):
        ingress = kept("Ingress", "web", {"rules": [rule("a.example", "/", "web", port=port)]})
        assert choose(routing([ingress], services, slices, [4]), "a.example", "/x") == (Server("10.0.0.1", 8080),)
    other = kept("Ingress", "web", {"rules": [rule("a.example", "/", "web", port=81)]})
    assert choose(routing([other], services, slices, [4]), "a.example", "/x") == ()
    assert choose(routing([other], services, slices, [4]), "b.example", "/x") is None


def test_only_ingresses_of_the_controllers_classes_are_served() -> None:
    services, slices = [service("web")], [slice_of("web", "10.0.0.1")]

    def is_served(spec: dict[str, Any], *classes: Unstructured, annotations: dict[str, str] | None = None) -> bool:
        ingress = kept("Ingress", "web", {**spec, "rules": [rule("", "/", "web")]}, annotations)
        return bool(choose(routing([*classes, ingress], services, slices, [4]), "any", "/"))

    own = kept("IngressClass", "nginx", {"controller": "k8s.io/ingress-nginx"})
    other = kept("IngressClass", "haproxy", {"controller": "haproxy.org/ingress-controller"})
    default = kept(
        "IngressClass", "nginx", own.content["spec"], {"ingressclass.kubernetes.io/is-default-class": "true"}
    )
    assert is_served({})
    assert is_served({"ingressClassName": "nginx"}, own, other)
    assert is_served({}, own, annotations={"kubernetes.io/ingress.class": "nginx"})
    assert is_served({}, default)
    assert not is_served({}, own)
    assert not is_served({"ingressClassName": "haproxy"}, own, other)
    assert not is_served({"ingressClassName": "gone"}, own)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 5), st.integers(1, 5))
def test_the_services_of_an_http_route_share_by_weight_whatever_their_endpoints(
    first: int, second: int, many: int, few: int
) -> None:
    addresses = [[f"10.{number}.0.{each}" for each in range(count)] for number, count in enumerate((many, few))]
    slices = [slice_of("one", *addresses[0]), slice_of("two", *addresses[1])]
    refs = [{"name": "one", "port": 80, "weight": first}, {"name": "two", "port": 80, "weight": second}]
    route = kept("HTTPRoute", "shop", {"rules": [{"backendRefs": refs}]})
    servers = choose(routing([route], [service("one"), service("two")], slices, [4]), "any", "/") or ()
    shares = [sum(each.weight for each in servers if each.address in own) for own in addresses]
    assert shares[0] * second == shares[1] * first
    assert len({each.weight for each in servers if each.address in addresses[0]}) == 1


def test_the_older_of_two_ingresses_keeps_a_path() -> None:
    ingresses = [kept("Ingress", name, {"rules": [rule("a.example", "/", name)]}) for name in ("one", "two")]
    slices = [slice_of("one", "10.0.0.1"), slice_of("two", "10.0.0.2")]
    found = choose(routing(ingresses, [service("one"), service("two")], slices, [4]), "a.example", "/")
    assert found == (Server("10.0.0.1", 8080),)
