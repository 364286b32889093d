"""What the names of chains hold that a proxy in mode iptables makes for Service ports and endpoints.

kube-proxy names a chain by what it is for (``KUBE-SVC-``, ``KUBE-SEP-``) and the first 16 characters of a hash, in base
32, of the Service port's name, its protocol in lower case and, for an endpoint, that endpoint (``servicePortChainName``
in pkg/proxy/iptables). So another program has such a chain only if it computes the name.
"""

from base64 import b32encode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256

from proxylab.addresses import with_port
from proxylab.cluster.objects import EndpointSlice, KubeObject, Service

_CHARACTERS = 16
_MOST_REMEMBERED = 1 << 16
"""A scenario with steps asks for the same hashes at each."""


def chain_hashes(objects: Iterable[KubeObject]) -> Iterator[str]:
    """The hashes of all Service ports among objects, and of their endpoints."""
    objects = tuple(objects)
    services = {(each.namespace, each.name): each for each in objects if isinstance(each, Service)}
    for service in services.values():
        yield from (_hashed(_identity(service, port.name, port.protocol)) for port in service.ports)
    for piece in (each for each in objects if isinstance(each, EndpointSlice)):
        behind = services.get((piece.namespace, piece.service))
        if behind is None:
            continue
        for own in piece.ports:
            identity = _identity(behind, own.name, own.protocol)
            yield from (_hashed(identity + with_port(each.addresses[0], own.port)) for each in piece.endpoints)


def _identity(service: Service, port: str, protocol: str) -> str:
    return f"{service.namespace}/{service.name}{f':{port}' if port else ''}{protocol.lower()}"


@lru_cache(maxsize=_MOST_REMEMBERED)
def _hashed(text: str) -> str:
    return b32encode(sha256(text.encode()).digest())[:_CHARACTERS].decode()
