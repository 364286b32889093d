"""What is broken in an engine, and which steps of the scenarios turn red by it.

Owns: the rows of ``breakages`` for scenarios that are about a change, or about what was before.
Must not: run anything.
"""

from breakages import BODIES, CATEGORIES, FRONTS, PORTS, UDP, Breakage

__all__ = ["STEPPING"]

STEPPING = [
    Breakage(
        "no flow of UDP is forgotten after any change",
        UDP,
        "UdpReconciler.update",
        "lambda self, ports: False",
        {
            "bugs/139628-udp-after-service-deletion": {
                "the Service is deleted and its pods serve to their end",
                "the pods are gone and another Service changes",
            },
            "steps/secondary-family": {"another comes and the first goes"},
            "steps/udp-streams-while-pods-are-replaced": {"another takes its place"},
        },
        # Tables are loaded one after the other: a pulse between the REJECT that is gone and the DNAT that comes.
        by_chance={"the first comes"},
    ),
    Breakage(
        "health that looks at no Node",
        "lab.engines.embedded.health",
        "Health.look_at",
        "lambda self, node: setattr(self, 'node_eligible', True)",
        {
            "steps/healthz-follows-node-removal": {
                "the autoscaler is about to remove it: it says so",
                "the autoscaler is about to remove it: it says so, over IPv6",
                "its object is being deleted: it says so again",
                "its object is being deleted: it says so again, over IPv6",
            }
        },
    ),
    Breakage(
        "no source is of any range",
        BODIES,
        "source_ranges",
        "lambda scope: iter(())",
        {
            "steps/load-balancer-settings-change": {
                "from both halves of the world: a stranger is served",
                "from both halves of the world: so is a pod",
            }
        },
    ),
    Breakage(
        "nobody who terminates is used",
        CATEGORIES,
        "_usable",
        "lambda endpoints: tuple(each for each in endpoints if each.ready)",
        {
            "steps/last-endpoint-terminates": {
                f"it terminates and serves: {probe}"
                for probe in (
                    "internal policy Cluster beside it",
                    "internal policy Cluster from elsewhere",
                    "internal policy Local beside it",
                    "internal policy Local from elsewhere",
                    "external policy Cluster by its node",
                    "external policy Cluster by another one",
                    "external policy Local by its node",
                    "external policy Local beside it",
                    "external policy Local by a pod's own node",
                    "external policy Local by another one's",
                )
            }
        },
    ),
    Breakage(
        "hints that nobody follows",
        CATEGORIES,
        "_hinted",
        "lambda ready, node: tuple(ready)",
        {
            "steps/endpoints-move": {
                "everywhere: the same node is preferred",
                "the first goes: the same zone is next",
                "the first comes back: the same node is preferred again",
            }
        },
    ),
    Breakage(
        "a beginning that looks at no other mode's rules",
        "lab.engines.embedded.iptables.proxier",
        "IptablesProxier.take_over",
        "lambda self: ()",
        {
            "leftovers/rules-of-another-proxy": {
                "a Service leads to its own pod, and the client keeps its address",
                "datagrams pass",
            }
        },
    ),
    Breakage(
        "labels that take no Service away",
        PORTS,
        "SERVICE_PROXY_NAME_LABEL",
        "'nobody'",
        {"steps/service-proxy-name-and-headless-labels": {"the labels are put on: it is left alone"}},
    ),
    Breakage(
        "no flow of UDP is ever forgotten",
        UDP,
        "UdpReconciler.update",
        "lambda self, ports: False",
        {
            "steps/a-rolling-update": {"the old one is gone"},
            "steps/scaled-to-zero-under-streams": {"nobody is there", "one is there and not ready", "it is ready"},
            "bugs/48370-udp-before-the-service-exists": {"so is its endpoint"},
            "bugs/130542-target-port-changes": {"at the other"},
            "steps/link-failure": {"somebody has noticed"},
        },
    ),
    Breakage(
        "every flow of UDP is forgotten when a proxy begins",
        UDP,
        "UdpReconciler.__call__",
        "lambda self, flow: flow.destination in self._wanted",
        {
            "steps/proxy-killed-under-streams": {"it is started again", "it is restarted"},
            "steps/rules-are-flushed-under-a-stream": {"who comes now is sent to another", "the rules are flushed"},
        },
    ),
    Breakage(
        "endpoints are told by their addresses alone",
        UDP,
        "UdpReconciler.__call__",
        "lambda self, flow: flow.reply_source[0] not in {end[0] for end in self._wanted.get(flow.destination, "
        "self._wanted.get((None, flow.destination[1]), {flow.reply_source}))}",
        {"bugs/130542-target-port-changes": {"at the other"}, "steps/a-rolling-update": set()},
    ),
    Breakage(
        "nobody is refused under the policy Local",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        {"steps/external-policy-on-three-nodes": {"the third drops", "Local again: the third drops"}},
    ),
    Breakage(
        "addresses of any family",
        PORTS,
        "_of_family",
        "lambda addresses, family: tuple(addresses)",
        {
            "bugs/73157-external-ip-of-the-wrong-family": {
                "a Service with a foreign address comes: it is served where it can be",
            },
        },
    ),
]
