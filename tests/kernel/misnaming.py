"""What is broken in the names of Services, and which probes turn red by it.

Owns: that part of the table; ``breakages`` has the others, and says how it is read.
Must not: run anything.
"""

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
                "a pod that is behind the name dials it as well",
                "a port that pods do not have is not translated",
                "the name gives the ready pods",
                "whoever is not ready is given where that is asked for",
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
                "a name whose Service has nobody behind it leads to a rejection",
                "a pod beside the name server asks for a name of its own namespace",
                "a pod elsewhere does so",
                "a pod of another namespace adds the Service's",
                "a pod on its node's network asks for the whole name",
            },
            "dns/external-name": {"the alias leads to the Service that it stands for"},
            "dns/records": {"the cluster IP's name is dialled"},
        },
    ),
]
