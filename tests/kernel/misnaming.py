"""Defects in the names of Services, and the probes that each turns red: rows of the table in ``breakages``."""

from breakages import NAMES, Breakage

__all__ = ["MISNAMING"]

MISNAMING = [
    Breakage(
        "headless Services without a name",
        NAMES,
        "_headless",
        "lambda name, slices: ()",
        {
            "dns/headless-by-name": {
                "DNS name of a headless Service gives an endpoint its own address too",
                "port of a headless Service is not translated to its targetPort",
                "DNS name of a headless Service gives the ready pods only",
                "DNS name with publishNotReadyAddresses gives unready and terminating pods too",
            },
        },
    ),
    Breakage(
        "names of Services that lead to the address beside theirs",
        NAMES,
        "_with_cluster_ips",
        "lambda name, service: ((name, module._address(address + 1)) for address in service.cluster_ips)",
        {
            "dns/cluster-ip-by-name": {
                "DNS name of a Service without endpoints leads to a rejection",
                "DNS name of a Service in the pod's namespace resolves beside the name server",
                "DNS name of a Service in the pod's namespace resolves from another node",
                "DNS name with its namespace resolves for a pod of another namespace",
                "full DNS name of a Service resolves from a host-network pod",
            },
            "dns/external-name": {"ExternalName of a cluster Service leads to the endpoints of that Service"},
            "dns/records": {"DNS name of a ClusterIP Service leads to its endpoints"},
        },
    ),
]
