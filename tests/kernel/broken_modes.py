"""Defects of one mode, and of what no mode translates: rows of the table in ``broken_promises``."""

from breakages import PORTS
from broken_promises import NFTABLES, USERSPACE, BrokenPromise

__all__ = ["BROKEN_MODES"]

_PROCESS = "proxylab.engines.embedded.userspace"
_PROGRAM = (
    f"(module.sys.executable, '-c', 'from {_PROCESS} import balance, program; {{}};"
    " program._main(*program.sys.argv[1:])')"
)
# A Service of these, a headless one, gets the addresses of its pods as its own.
_PROXIED_PODS = (
    "lambda self, cluster, whole=module.PortTracker.update, replace=__import__('msgspec').structs.replace:"
    " (pods := lambda s: tuple(e.addresses[0] for x in cluster.slices"
    " if (x.namespace, x.service) == (s.namespace, s.name) for e in x.endpoints)) and whole(self, replace(cluster,"
    " services=tuple(replace(s, headless=False, cluster_ips=pods(s), external_ips=pods(s)) if {} else s"
    " for s in cluster.services), slices=tuple(replace(x, labels={{}}) for x in cluster.slices)))"
)

BROKEN_MODES = [
    BrokenPromise(
        "headless Services are served at the addresses of their pods",
        PORTS,
        "PortTracker.update",
        _PROXIED_PODS.format("s.headless"),
        ("clusterip/headless",),
    ),
    BrokenPromise(
        "the port of a headless Service is translated to its targetPort",
        PORTS,
        "PortTracker.update",
        _PROXIED_PODS.format("s.name == 'front'"),
        ("dns/headless-by-name",),
    ),
    BrokenPromise(
        "another endpoint stands in for the one that was picked",
        "proxylab.engines.embedded.iptables.service_chains",
        "translation",
        (
            "lambda scope, endpoint, whole=module.translation:"
            " (whole(scope, endpoint)[0].replace(endpoint.name, scope.endpoints.reachable[-1].name),)"
        ),
        ("userspace/another-endpoint-is-tried",),
    ),
    BrokenPromise(
        "localhostNodePorts is always off",
        "proxylab.engines.embedded.settings",
        "ProxySettings.serves_loopback",
        "property(lambda self: False)",
        ("senders/from-loopback",),
    ),
    BrokenPromise(
        "mode nftables serves node ports at each address, 127.0.0.1 too",
        NFTABLES,
        "_rules",
        (
            "lambda proxy, cidrs, *, restricted, whole=module._rules: ((chain, rule.replace("
            "'ip daddr != 127.0.0.0/8 ', '')) for chain, rule in whole(proxy, cidrs, restricted=False))"
        ),
        ("bugs/92315-neighbours-reach-loopback", "userspace/addresses-of-the-node"),
        "embedded/nftables",
    ),
    BrokenPromise(
        "the process tries one endpoint",
        f"{_PROCESS}.process",
        "_COMMAND",
        _PROGRAM.format("program._DIAL_SECONDS = program._DIAL_SECONDS[:1]"),
        ("userspace/another-endpoint-is-tried",),
        "embedded/userspace",
    ),
    BrokenPromise(
        "the process takes the first endpoint",
        f"{_PROCESS}.process",
        "_COMMAND",
        _PROGRAM.format("balance.EndpointBalancer.choose = lambda self, client, now, failed=False: self._endpoints[0]"),
        ("userspace/round-robin-and-affinity",),
        "embedded/userspace",
    ),
    BrokenPromise(
        "the process never forgets a UDP client",
        f"{_PROCESS}.process",
        "_COMMAND",
        _PROGRAM.format("program.sys.argv[2] = str(300)"),
        ("userspace/udp-client-keeps-its-endpoint",),
        "embedded/userspace",
    ),
    BrokenPromise(
        "the process forgets a UDP client at once",
        f"{_PROCESS}.process",
        "_COMMAND",
        _PROGRAM.format("program.sys.argv[2] = str(0.01)"),
        ("userspace/udp-client-keeps-its-endpoint",),
        "embedded/userspace",
    ),
    BrokenPromise(
        "the process outlives the proxy",
        f"{_PROCESS}.process",
        "StartedProcess.close",
        "lambda self: __import__('asyncio').sleep(0)",
        ("userspace/proxy-stops",),
        "embedded/userspace",
    ),
    BrokenPromise(
        "the rules of mode userspace lead past the process",
        f"{_PROCESS}.rules",
        "_portals",
        (
            "lambda port, to, listen, host, whole=module._portals:"
            " whole(port, port.endpoints[0].port, *[port.endpoints[0].address] * 2)"
        ),
        ("userspace/every-pod-sees-the-node",),
        "embedded/userspace",
    ),
    BrokenPromise(
        "the process discards Services without endpoints",
        USERSPACE,
        "served_ports",
        "lambda ports, whole=module.served_ports: whole([port for port in ports if port.endpoints])",
        ("userspace/accepted-then-closed",),
        "embedded/userspace",
    ),
    BrokenPromise(
        "the process copies a thousand bytes of each datagram",
        f"{_PROCESS}.process",
        "_COMMAND",
        _PROGRAM.format("program._LONGEST_DATAGRAM = 1000"),
        ("userspace/large-data",),
        "embedded/userspace",
    ),
    BrokenPromise(
        "the process copies a thousand bytes of what a client sends at once",
        f"{_PROCESS}.process",
        "_COMMAND",
        _PROGRAM.format("whole = program._Leg.write; program._Leg.write = lambda leg, data: whole(leg, data[:1000])"),
        ("userspace/large-data",),
        "embedded/userspace",
    ),
]
