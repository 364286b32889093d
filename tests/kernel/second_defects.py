"""Defects that meet only the second of something: a port, an endpoint, a range, a label. Rows for ``broken_promises``.

No object of the API shows such a defect where a proxy derives a rule for each of several things by itself. What an
object shows is a mutant of objects instead (``proxylab mutate --objects``).
"""

from breakages import BODIES, CATEGORIES, PORTS
from broken_promises import BrokenPromise

__all__ = ["SECOND_DEFECTS"]

_NFTABLES_SERVICE = "proxylab.engines.embedded.nftables.service"

SECOND_DEFECTS = [
    BrokenPromise(
        "only the first endpoint of a Service reaches itself",
        BODIES,
        "hairpin",
        "lambda scope, e, whole=module.hairpin: whole(scope, e) if e.name == scope.port.endpoints[0].name else ()",
        ("hairpin/each-of-several-endpoints", "hairpin/second-local-endpoint-with-affinity"),
    ),
    BrokenPromise(
        "only the first endpoint of a node reaches itself",
        _NFTABLES_SERVICE,
        "_hairpins",
        "lambda *given, whole=module._hairpins: dict([*whole(*given).items()][:1])",
        ("hairpin/second-local-endpoint-with-affinity",),
        "embedded/nftables",
    ),
    BrokenPromise(
        "the settings of a Service count for its first port",
        PORTS,
        "ports_of",
        (
            "lambda *given, whole=module.ports_of: (p if not n else p._replace(source_ranges=(), affinity_timeout=None,"
            " internal_policy_local=False, external_policy_local=False) for n, p in enumerate(whole(*given)))"
        ),
        ("loadbalancer/settings-at-the-second-port",),
    ),
    BrokenPromise(
        "affinity ends at the first port of a Service alone",
        PORTS,
        "ports_of",
        (
            "lambda *given, whole=module.ports_of: (p._replace(affinity_timeout=10800) if n else p"
            " for n, p in enumerate(whole(*given)))"
        ),
        ("steps/affinity-timeout-at-the-second-port",),
    ),
    BrokenPromise(
        "a Service has one source range of a family",
        PORTS,
        "_source_ranges",
        "lambda *given, whole=module._source_ranges: whole(*given)[:1]",
        ("loadbalancer/second-range-and-second-address",),
    ),
    BrokenPromise(
        "a range of all addresses of one family opens both",
        PORTS,
        "_source_ranges",
        (
            "lambda service, family, whole=module._source_ranges: whole(service, family)"
            " if all(r.prefixlen for r in service.source_ranges) else ()"
        ),
        ("loadbalancer/second-range-and-second-address",),
    ),
    BrokenPromise(
        "an endpoint serves the first zone of its hints",
        PORTS,
        "_endpoint",
        "lambda *given, whole=module._endpoint: (lambda e: e._replace(for_zones=e.for_zones[:1]))(whole(*given))",
        ("topology/second-zone-and-local-policy",),
    ),
    BrokenPromise(
        "an endpoint serves the first node of its hints",
        PORTS,
        "_endpoint",
        "lambda *given, whole=module._endpoint: (lambda e: e._replace(for_nodes=e.for_nodes[:1]))(whole(*given))",
        ("topology/second-node-of-a-hint",),
    ),
    BrokenPromise(
        "hints count under policy Local",
        CATEGORIES,
        "categorize_endpoints",
        (
            "lambda port, node, whole=module.categorize_endpoints:"
            " whole(port._replace(endpoints=module._cluster_endpoints(port.endpoints, node)), node)"
        ),
        ("topology/second-zone-and-local-policy",),
    ),
    BrokenPromise(
        "endpoints of a node whose name begins as this one's are local",
        PORTS,
        "_endpoint",
        (
            "lambda endpoint, port, node, whole=module._endpoint:"
            " whole(endpoint, port, node)._replace(is_local=endpoint.node_name.startswith(node))"
        ),
        ("clusterip/names-that-begin-alike",),
    ),
    BrokenPromise(
        "a selector has one label",
        "proxylab.cluster.slices",
        "derive_slices",
        (
            "lambda services, *given, whole=module.derive_slices: whole([__import__('msgspec').structs.replace("
            "s, selector=dict([*s.selector.items()][:1])) for s in services], *given)"
        ),
        ("clusterip/names-that-begin-alike",),
    ),
    BrokenPromise(
        "the first of two entries of an endpoint counts",
        PORTS,
        "_endpoints",
        (
            "lambda port, slices, node, whole=module._endpoints: whole(port, [__import__('msgspec').structs.replace("
            "s, endpoints=tuple(e for e in s.endpoints if not any(e.addresses == f.addresses for b in slices[:n]"
            " for f in b.endpoints))) for n, s in enumerate(slices)], node)"
        ),
        ("terminating/first-and-last-endpoint",),
    ),
]
