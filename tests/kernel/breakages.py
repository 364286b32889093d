"""What is broken in the rules, and which probes of the scenarios turn red by it.

Owns: the table that takes a rule out of the renderer, or changes how it chooses; ``edits`` has what changes in a file.
Must not: run anything.

One test breaks one thing for all the files that are about it. Most files dial over both families, and what is broken is
rendered for each by the same code; so a probe that turns red does so over both, and those that do not are named with
the reason.
"""

from dataclasses import dataclass, field

__all__ = ["BREAKAGES", "Breakage"]

BODIES = "lab.engines.embedded.iptables.bodies"
FIXED = "lab.engines.embedded.iptables.fixed"
FRONTS = "lab.engines.embedded.iptables.fronts"
SCOPE = "lab.engines.embedded.iptables.scope"
CATEGORIES = "lab.engines.embedded.categories"
PORTS = "lab.engines.embedded.ports"
NAMES = "lab.cluster.names"
UDP = "lab.engines.embedded.udp"


@dataclass(frozen=True)
class Breakage:
    """What is replaced by what in the renderer, and the probes of each file that do not pass in some case of it.

    All other probes of these files hold in all cases. ``over_one_family`` are those of the red ones that hold over the
    other family, and ``by_chance`` those that turn red or not as a pulse falls.
    """

    name: str
    module: str
    attribute: str
    becomes: str
    red: dict[str, set[str]]
    over_one_family: set[str] = field(default_factory=set)
    by_chance: set[str] = field(default_factory=set)


BREAKAGES = [
    Breakage(
        "no masquerade",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        {
            "nodeport/masquerade-address-by-network": {
                "a node by itself",
                "a node by its loopback address",
                "a pod by its own node",
                "a stranger by a node without backend",
                "a stranger by the backend's node",
            },
            "nodeport/two-clients-with-one-source-port": {
                "the first asks and is answered",
                "the second asks from the same port and is answered too",
            },
            "externalip/unassigned-address": {
                "a pod is translated on its own node",
                "a stranger is translated by the node it is routed to",
                "so is its datagram",
            },
            "masquerade/all": {"a backend elsewhere sees the node", "a backend of the node sees the pods' gateway"},
            "clusterip/host-network-endpoints": {"a stranger is passed on by another node as that node"},
            "manifests/hosts-as-endpoints": {"an outside host reaches both as its node"},
            "detect-local/cluster-cidr": {"a stranger is masqueraded"},
            "fragments/datagrams-above-the-mtu": {"all of them are masqueraded"},
            "senders/from-loopback": {
                "localhost is masqueraded under the policy Local, too",
                "localhost leads to a pod elsewhere",
                "localhost leads to a pod of the node",
            },
        },
        # ::1 has no node ports that could be masqueraded.
        over_one_family={
            "a node by its loopback address",
            "localhost is masqueraded under the policy Local, too",
            "localhost leads to a pod elsewhere",
            "localhost leads to a pod of the node",
        },
    ),
    Breakage(
        "no rule against hairpins",
        BODIES,
        "hairpin",
        "lambda scope, endpoint: ()",
        {
            "hairpin/on-a-bridge": {"a pod reaches itself through its Service"},
            "hairpin/on-a-promiscuous-bridge": {"a pod reaches itself through its Service"},
            "network/hairpin": {"a pod reaches itself through its Service"},
        },
    ),
    Breakage(
        "one in n for everybody",
        BODIES,
        "share",
        "lambda index, count: '' if count - index == 1 else f'-m statistic --mode random --probability {1 / count:f}'",
        {
            "spread/two-three-four-and-seven-endpoints": {
                "four get a quarter each",
                "seven get a seventh each",
                "three get a third each",
            }
        },
    ),
    Breakage(
        "a mark that nothing clears",
        FIXED,
        "postrouting",
        "lambda settings, whole=module.postrouting: tuple(rule for rule in whole(settings) if 'xor' not in str(rule))",
        {
            "masquerade/once-through-a-tunnel": {
                "a node's own datagram",
                "a stranger's, by a node without endpoint",
            }
        },
    ),
    Breakage(
        "rules that ask for an address alone",
        SCOPE,
        "to_address",
        "lambda protocol, address, port: f'-d {address}'",
        {"icmp/echo-requests": {"so is the cluster IP of one without endpoints"}},
    ),
    Breakage(
        "no guard of loopback",
        FIXED,
        "loopback_guard",
        "lambda: ()",
        {
            "bugs/92315-neighbours-reach-loopback": {
                "a neighbour's frame does not",
                "nor does its echo request",
            }
        },
    ),
    Breakage(
        "every source is of the range",
        BODIES,
        "source_ranges",
        "lambda scope: iter((f'-A {scope.chains.firewall} -j {scope.chains.external}',))",
        {
            "loadbalancer/source-ranges": {
                "a host that is not of the range is dropped",
                "a node that is not of the range is dropped too",
                "a pod that is not of the range is dropped too",
            }
        },
    ),
    Breakage(
        "no external IPs",
        FRONTS,
        "external_ip",
        "lambda scope, address: ()",
        {
            "externalip/unassigned-address": {
                "a node is translated on itself",
                "a pod is translated on its own node",
                "a stranger is translated by the node it is routed to",
                "so is its datagram",
            },
            "externalip/hijacked-address": {
                "so does what a node sends there",
                "what a pod sends to the machine ends at the Service's pod",
            },
        },
    ),
    Breakage(
        "no refusal but at the cluster IP",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        {
            "rejections/at-every-frontend": {
                "a node is told at its own node port",
                "a pod is told at a node port of another",
                "a pod is told at a node port of its own node",
                "a pod is told at the external IP",
                "a pod is told at the load balancer's address, by its own node",
                "a stranger is told at the external IP",
                "a stranger is told at the load balancer's address",
                "a stranger is told at the node port",
            },
            "rejections/daemon-on-the-node-port": {
                "a pod is rejected at an address without node ports, which is a limit of upstream",
                "a pod is rejected by the Service",
                "a pod is rejected so over IPv6",
                "a stranger is rejected by the Service",
            },
            "rejections/no-local-endpoint-or-no-endpoint": {
                "a stranger hears at once that there are none at all",
                "a stranger hears nothing where endpoints are elsewhere",
            },
            "loadbalancer/health-checked": {"what passes the balancer by is dropped there"},
        },
    ),
    Breakage(
        "no refusal at the cluster IP",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        {
            "clusterip/no-endpoints": {
                "a pod hears at once that no pod is ready",
                "a pod hears at once that no pod matches",
                "a pod hears so over UDP too",
                "an outside host hears it from the node it enters by",
                "every single packet is told",
            },
            "clusterip/internal-traffic-policy-local": {"a pod on a node without endpoint is dropped there"},
            "clusterip/publish-not-ready-addresses": {"without the field nobody is there"},
            "manifests/namespaces": {"no pod of this namespace"},
            "rejections/no-local-endpoint-or-no-endpoint": {
                "a pod hears at once that there are none at all",
                "a pod hears nothing where endpoints are elsewhere",
            },
        },
    ),
    Breakage(
        "no short circuit",
        BODIES,
        "short_circuit",
        "lambda scope: iter(())",
        {
            "loadbalancer/short-circuits": {
                "a node is served as itself",
                "a node is served at its node port",
                "a pod is served and keeps its address",
            },
            "detect-local/cluster-cidr": {"a pod is short-circuited past the policy Local"},
            "senders/from-loopback": {"localhost is masqueraded under the policy Local, too"},
        },
        over_one_family={"localhost is masqueraded under the policy Local, too"},  # ::1 has no node ports
    ),
    Breakage(
        "no last resort",
        CATEGORIES,
        "_usable",
        "lambda endpoints: tuple(each for each in endpoints if each.ready)",
        {
            "terminating/fallback-without-ready-endpoints": {"who still serves is used when nobody is ready"},
            "terminating/local-policy-fallback": {"it serves all the same"},
            "steps/a-rolling-update-behind-a-load-balancer": {
                "the old one terminates and serves: its node serves all the same",
            },
        },
    ),
    Breakage(
        "no hints",
        CATEGORIES,
        "_hinted",
        "lambda ready, node: tuple(ready)",
        {
            "topology/prefer-same-node": {
                "a pod beside an endpoint stays on its node",
                "a pod on a node without one stays in its zone",
            },
            "topology/prefer-same-zone": {
                "a pod in the east stays there",
                "a pod in the west stays there",
                "hints that point elsewhere count under the policy Cluster",
            },
        },
    ),
    Breakage(
        "hints of the west under the policy Local as well",
        CATEGORIES,
        "_usable",
        "lambda endpoints, usable=module._usable: tuple(e for e in usable(endpoints) if 'west' not in e.for_zones)",
        {"topology/prefer-same-zone": {"under the policy Local they do not"}},
    ),
    Breakage(
        "a cluster IP with every port of it",
        SCOPE,
        "to_address",
        "lambda protocol, address, port: f'-p {protocol.lower()} -d {address!s}'",
        {
            "clusterip/several-ports": {"the metrics are served by those that have them"},
            "untranslated/unused-port-of-a-cluster-ip": {
                "another port of it leaves the node",
                "another port of it leaves the node over IPv6 too",
                "what a node sends there leaves it too",
                "what a node sends there over IPv6 leaves it too",
            },
        },
    ),
    Breakage(
        "no DNAT",
        BODIES,
        "translation",
        "lambda scope, endpoint: ()",
        {
            "bugs/74839-segment-out-of-window": {"a sound connection is carried"},
            "bugs/117924-segment-out-of-window-at-a-node": {"a sound connection of a node is carried"},
            "clusterip/headless": {"the Service beside it translates"},
            "clusterip/one-port-over-tcp-and-udp": {
                "a query over UDP is answered",
                "a transfer over TCP is answered",
                "queries over UDP are shared evenly",
            },
            "hairpin/same-node-reply-past-a-bridge": {
                "a backend elsewhere always does",
                "a backend on the node answers as the Service",
            },
            "network/host-network-and-shared-netns": {
                "a pod reaches everybody in the crowd",
                "a pod reaches the agents of all nodes",
                "one of the crowd reaches others",
            },
        },
    ),
    Breakage(
        "every Service is ours",
        PORTS,
        "SERVICE_PROXY_NAME_LABEL",
        "'nobody'",
        {
            "clusterip/service-proxy-name-label": {
                "a Service with endpoints is left alone",
                "one without is not even rejected",
            }
        },
    ),
    Breakage(
        "every balancer's address is the Service's",
        PORTS,
        "_vips",
        "lambda service, family: module._of_family([e.ip for e in service.load_balancer_ingress if e.ip], family)",
        {"loadbalancer/ip-mode-proxy": {"a pod's packet goes to the balancer", "so does a node's"}},
    ),
    Breakage(
        "the policy for strangers at the cluster IP as well",
        SCOPE,
        "Scope.internal_chain",
        "property(lambda scope: scope.chains.local if scope.endpoints.local else scope.chains.cluster)",
        {"clusterip/ignores-external-traffic-policy": {"a pod beside an endpoint is served by all of them"}},
    ),
    Breakage(
        "no node ports",
        FRONTS,
        "node_port",
        "lambda scope: ()",
        {
            "nodeport/node-port-addresses": {
                "an address of the list has node ports",
                "every address of IPv6 has them, since the list names none",
            },
            "nodeport/localhost-node-ports-off": {"the node's address has them"},
            "network/strict-reverse-path": {
                "a host behind the first dials it",
                "a host behind the second uplink dials the node port",
            },
        },
    ),
    Breakage(
        "no load-balancer IPs",
        FRONTS,
        "load_balancer_vip",
        "lambda scope, address: ()",
        {
            "loadbalancer/without-node-ports": {"the address is served"},
            "loadbalancer/health-checked": {
                "the balancer leaves out the node without an endpoint",
                "what passes the balancer by is dropped there",
            },
        },
    ),
]
