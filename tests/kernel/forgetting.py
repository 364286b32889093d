"""Defects in session affinity, and the probes that each turns red: rows of the table in ``breakages``."""

from breakages import BODIES, Breakage

__all__ = ["FORGETTING"]

FORGETTING = [
    Breakage(
        "no memory of clients",
        BODIES,
        "remembered",
        "lambda scope, chain, endpoint, seconds: f'-A {chain}'",
        {
            "affinity/shared-by-all-frontends": {
                ("three more pods become ready: ClientIP affinity spreads new clients over all pods, each to one"),
                (
                    "three more pods become ready: "
                    "load balancer IP follows the ClientIP affinity that a client got at the NodePort"
                ),
                (
                    "three more pods become ready: "
                    "external IP follows the ClientIP affinity that a client got at the NodePort"
                ),
                (
                    "three more pods become ready: "
                    "ClusterIP follows the ClientIP affinity that a client got at the NodePort"
                ),
            },
            "affinity/more-clients-than-the-recent-list-holds": {
                "three more pods become ready: ClientIP affinity returns all of 50 clients to their pod"
            },
            "affinity/an-address-is-a-client": {
                f"three more pods become ready: ClientIP affinity {each}"
                for each in (
                    "of one pod binds another pod behind the same address",
                    "returns the IPv4 addresses of a machine to their pod",
                    "over IPv4 leaves the machine's IPv6 addresses free to spread",
                )
            },
            "affinity/separate-for-each-port": {
                (
                    "three more pods become ready: "
                    "ClientIP affinity at a second port picks an endpoint of its own for each client"
                ),
                "three more pods become ready: ClientIP affinity returns all clients of port http to their pod",
            },
            "affinity/timeout-counts-from-the-last-connection": {
                (
                    "timeoutSeconds pass since the first connection and a second pod is ready: "
                    "ClientIP affinity that a second connection renewed still holds"
                )
            },
            "affinity/other-endpoints-change": {
                (
                    "an endpoint before and an endpoint after the clients' own become ready: "
                    "ClientIP affinity survives new endpoints before and after the client's own"
                ),
                (
                    "the endpoint before the clients' own is deleted: "
                    "ClientIP affinity survives the deletion of an endpoint before the client's own"
                ),
                (
                    "the first endpoint is back and the last one terminates: "
                    "ClientIP affinity survives the return of an endpoint before the client's own"
                ),
            },
        },
    ),
    Breakage(
        "a memory by the place among the endpoints",
        BODIES,
        "remembered",
        "lambda scope, chain, endpoint, seconds, rule=module.remembered, chains=lambda scope, endpoint, others:"
        " (scope.endpoint_chains[endpoint.name],"
        " scope.endpoint_chains[others[(others.index(endpoint) + 1) % len(others)].name]):"
        " rule(scope, chain, endpoint, seconds).replace(*chains(scope, endpoint, scope.endpoints.cluster), 1)",
        {
            "affinity/other-endpoints-change": {
                (
                    "an endpoint before and an endpoint after the clients' own become ready: "
                    "ClientIP affinity survives new endpoints before and after the client's own"
                ),
                (
                    "the endpoint before the clients' own is deleted: "
                    "ClientIP affinity survives the deletion of an endpoint before the client's own"
                ),
                (
                    "the first endpoint is back and the last one terminates: "
                    "ClientIP affinity survives the return of an endpoint before the client's own"
                ),
            }
        },
    ),
    Breakage(
        "a memory that nothing renews",
        BODIES,
        "translation",
        "lambda scope, endpoint, make=module.translation: ("
        "(lambda chain: f'-A {chain} -m recent --name {chain} ! --rcheck -m recent --name {chain} --set')"
        "(scope.endpoint_chains[endpoint.name]), "
        "make(scope, endpoint)[0].replace(f' -m recent --name {scope.endpoint_chains[endpoint.name]} --set', ''))",
        {
            "affinity/timeout-counts-from-the-last-connection": {
                (
                    "timeoutSeconds pass since the first connection and a second pod is ready: "
                    "ClientIP affinity that a second connection renewed still holds"
                )
            }
        },
    ),
    Breakage(
        "no list of clients",
        BODIES,
        "remembered",
        "lambda scope, chain, endpoint, seconds: ''",
        {
            "steps/affinity-when-endpoints-change": {
                "two endpoints are added: ClientIP affinity survives added endpoints",
                "another endpoint is deleted: ClientIP affinity survives the deletion of another endpoint",
                (
                    "the first endpoint becomes ready again: "
                    "ClientIP affinity stays with the second endpoint when the first is ready again"
                ),
            },
        },
    ),
]
