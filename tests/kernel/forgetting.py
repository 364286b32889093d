"""What is broken in the memory of clients (session affinity), and which probes turn red by it.

Owns: that part of the table; ``breakages`` has the others, and says how it is read.
Must not: run anything.
"""

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
                "the others are ready: clients who never came are led to any of them, each to one",
                "the others are ready: so does the balancer's address",
                "the others are ready: so does the external IP",
                "the others are ready: the cluster IP then leads there too",
            },
            "affinity/more-clients-than-the-recent-list-holds": {
                "the others are ready: few clients all come back to it"
            },
            "affinity/separate-for-each-port": {
                "the others are ready: by the second port each of them is led to any pod, and stays there",
                "the others are ready: they come back to it",
            },
            "affinity/timeout-counts-from-the-last-connection": {
                "the timeout is over since the first time, and another is ready: who came again belongs there still"
            },
            "affinity/other-endpoints-change": {
                "others are ready, in front and behind: with others ready they stay",
                "the first is gone: with the first gone they stay",
                "the last one terminates, and the first is back: with the first one back they stay",
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
                "others are ready, in front and behind: with others ready they stay",
                "the first is gone: with the first gone they stay",
                "the last one terminates, and the first is back: with the first one back they stay",
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
                "the timeout is over since the first time, and another is ready: who came again belongs there still"
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
                "others come: the client stays",
                "another goes: the client stays with it",
                "the first comes back: the client stays where it is now",
            },
        },
    ),
]
