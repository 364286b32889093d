"""The configuration of nginx for a routing of HTTP requests.

nginx chooses among ``location = PATH`` and the longest ``location PREFIX`` (ngx_http_core_module). A Prefix of path
elements becomes both: ``= /cart`` and ``/cart/``. nginx redirects ``/cart`` to ``/cart/`` where only the second is
there, so each location that ends in a slash has the first one as well.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.cluster.http_routes import PathMatching, PathRoute, Routing, Server, VirtualHost, choose

CONFIGURATION: Final = "/run/nginx.conf"
CERTIFICATE: Final = "/run/nginx-tls.pem"
"""The certificate and its key."""

STATUS_PORT: Final = 61445
"""On the loopback address, beside the API server's port: it says which configuration is in use."""

POD_HEADER: Final = "X-Proxylab-Pod"
PEER_HEADER: Final = "X-Proxylab-Peer"

_HEAD: Final = """\
daemon off;
user root;
worker_processes 1;
pid /run/nginx.pid;
error_log stderr notice;
events { worker_connections 4096; }
http {
  access_log off;
  server_tokens off;
  client_body_temp_path /run/nginx-body;
  proxy_temp_path /run/nginx-proxy;
  fastcgi_temp_path /run/nginx-fastcgi;
  uwsgi_temp_path /run/nginx-uwsgi;
  scgi_temp_path /run/nginx-scgi;
  server_names_hash_bucket_size 512;
  add_header X-Proxylab-Pod "POD" always;
  add_header X-Proxylab-Peer "$remote_addr $remote_port" always;
  proxy_http_version 1.1;
  proxy_set_header X-Request-Id $http_x_request_id;
  proxy_set_header Host $http_host;
  proxy_set_header X-Real-IP $remote_addr;
  proxy_set_header X-Forwarded-For $remote_addr;
  proxy_set_header X-Forwarded-Host $http_host;
  proxy_set_header X-Forwarded-Proto $scheme;
"""
"""As ingress-nginx does by default, X-Forwarded-For has the peer's address alone, whatever the client wrote."""


class NginxListen(Struct, frozen=True):
    """A port on which nginx listens, in each version of IP that the pod has."""

    port: int
    tls: bool = False


def nginx_conf(routes: Routing, pod: str, listens: Sequence[NginxListen], versions: Sequence[int], number: int) -> str:
    """The configuration of the nginx in ``pod``; ``number`` is what it says of itself on ``STATUS_PORT``."""
    return "\n".join((_HEAD.replace("POD", pod).rstrip(), *_http(routes, listens, versions, number), "}", ""))


def _http(routes: Routing, listens: Sequence[NginxListen], versions: Sequence[int], number: int) -> Iterator[str]:
    upstreams: dict[tuple[Server, ...], str] = {}
    servers = list(_servers(routes, listens, versions, upstreams))
    for members, name in upstreams.items():
        yield f"  upstream {name} {{"
        for each in members:
            address = f"[{each.address}]" if ":" in each.address else each.address
            yield f"    server {address}:{each.port} weight={each.weight} max_fails=0;"
        yield "  }"
    yield f"  server {{ listen 127.0.0.1:{STATUS_PORT}; return 200 {number}; }}"
    yield from servers


def _servers(
    routes: Routing, listens: Sequence[NginxListen], versions: Sequence[int], upstreams: dict[tuple[Server, ...], str]
) -> Iterator[str]:
    hosts = list(routes.hosts)
    if all(each.name for each in hosts):
        hosts.append(VirtualHost("", ()))
    for host in hosts:
        for listen in listens:
            if listen.tls and host.name and not host.tls:
                continue
            yield "  server {"
            yield from _listening(listen, versions, default=not host.name)
            if host.name:
                yield f'    server_name "{_server_name(host)}";'
            yield from _locations(host, routes, upstreams)
            yield "  }"


def _listening(listen: NginxListen, versions: Sequence[int], *, default: bool) -> Iterator[str]:
    options = f"{' ssl' if listen.tls else ''}{' default_server' if default else ''}"
    if 4 in versions:
        yield f"    listen {listen.port}{options};"
    if 6 in versions:
        yield f"    listen [::]:{listen.port}{options};"
    if listen.tls:
        yield f"    ssl_certificate {CERTIFICATE};"
        yield f"    ssl_certificate_key {CERTIFICATE};"


def _server_name(host: VirtualHost) -> str:
    """A wildcard as a regular expression; nginx tries them in their order, and exact names before them."""
    if not host.name.startswith("*."):
        return host.name
    return f"~^{'.+' if host.labels else '[^.]+'}{re.escape(host.name[1:])}$"


def _locations(host: VirtualHost, routes: Routing, upstreams: dict[tuple[Server, ...], str]) -> Iterator[str]:
    exact, prefixes = locations(host.routes)
    alone = Routing((replace(host, name=""),), routes.default)
    for path in [each for each in (*prefixes, *exact) if len(each) > 1 and each.endswith("/")]:
        exact.setdefault(path[:-1], choose(alone, "", path[:-1]))
    if "/" not in prefixes:
        prefixes["/"] = routes.default if host.default is None else host.default
    for words, found in (("= ", exact), ("", prefixes)):
        for path, servers in found.items():
            yield f'    location {words}"{path}" {{ {_passing(servers, upstreams)} }}'


def _passing(servers: tuple[Server, ...] | None, upstreams: dict[tuple[Server, ...], str]) -> str:
    if not servers:
        return "return 404;" if servers is None else "return 503;"
    return f"proxy_pass http://{upstreams.setdefault(servers, f'u{len(upstreams)}')};"


_Servers = dict[str, tuple[Server, ...] | None]


def locations(routes: Sequence[PathRoute]) -> tuple[_Servers, _Servers]:
    """The exact locations and the prefixes of a host, with the servers of each."""
    by_match: Mapping[PathMatching, list[PathRoute]] = {match: [] for match in PathMatching}
    for route in routes:
        by_match[route.match].append(route)
    exact: _Servers = {each.path: each.servers for each in by_match[PathMatching.EXACT]}
    prefixes: _Servers = {each.path: each.servers for each in by_match[PathMatching.CHARACTERS]}
    for each in by_match[PathMatching.PREFIX]:
        below = each.path.rstrip("/")
        prefixes.setdefault(f"{below}/", each.servers)
        if below:
            exact.setdefault(below, each.servers)
    return exact, prefixes
