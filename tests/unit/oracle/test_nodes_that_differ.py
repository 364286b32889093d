"""Nodes whose proxies differ: in mode iptables and in mode nftables, as KEP-5343 has them, in version or configuration.

Each node does what the documents say of its own proxy. So what a flow meets depends on the node that it enters.
"""

from collections.abc import Sequence

import pytest
from oracle_worlds import cluster_of

from proxylab.cluster.configuration import Mode
from proxylab.oracle.answers import FlowAnswer
from proxylab.oracle.flows import Oracle
from proxylab.oracle.from_scenario import moment_of, outside_reach, question_of
from proxylab.plan.assembly import Assembly, assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.versions import Version
from proxylab.scenario.words import Outcome

CLUSTER = """
nodes: {old: {addresses: [{address: 172.18.0.98/16}]}, new: {addresses: [{address: 172.18.0.99/16}]}}
pods:
  web: {nodes: [old, new], replicas: 2, labels: {app: web}, ports: [8080]}
  of-old: {nodes: [old]}
  of-new: {nodes: [new]}
hosts: {outside: {}}
loadBalancers: {public: {pool: [192.0.2.0/24], nodes: [old, new]}}
"""
SERVICES = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.20
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {selector: {app: none}, externalIPs: [198.51.100.7], ports: [{port: 80}]}
"""
UNUSED_PORT = "to: {address: 10.96.0.20, port: 81}"
UNASSIGNED = "to: {address: 10.96.77.77, port: 80}"
WITHOUT_ENDPOINT = "to: {address: 198.51.100.7, port: 80}"
BY_HOST = "from: outside, to: {address: %s, port: 30080}"
LOCALHOST = "from: {name: %s, loopback: true}, to: {service: web, via: nodePort, node: %s}"


def assembly_of(
    sent: str,
    mode: str = "iptables",
    version: Version = (1, 37),
    actions: Sequence[str] = ("restart", "nftables", "iptables"),
    spec: str = CLUSTER,
) -> Assembly:
    """A scenario with a probe at its beginning and after each of these actions on the node ``new``."""
    probe = f"{{name: p, {sent}, expect: {{outcome: dropped}}}}"
    steps = [
        f"- {{name: step {number}, change: {{engines: {{new: {each}}}}}, until: {{elapsed: 1s}}, probes: [{probe}]}}"
        for number, each in enumerate(actions)
    ]
    text = cluster_of("\n".join([spec, "steps:", *steps]), SERVICES).replace("probes: []", f"probes: [{probe}]")
    (case,) = cases(parse_scenario(text, "world.lab.yaml"), mode, version)
    return assemble(case)


def answer(assembly: Assembly, made: int, mode: str = "iptables", version: Version = (1, 37)) -> FlowAnswer:
    """The answer to the only probe after that many steps."""
    oracle = Oracle(moment_of(assembly, made, Mode(mode), version))
    return oracle.answer(question_of(assembly.resolved(assembly.scenario.probes[0])))


def outcomes(sent: str) -> list[str]:
    """What becomes of a probe before the node changes its mode, then, and when it has changed back."""
    assembly = assembly_of(sent)
    assert [outside_reach(assembly, each, (1, 37)) for each in assembly.scenario.all_probes] == ["", "", "", ""]
    return ["/".join(answer(assembly, made).outcomes) for made in (1, 2, 3)]


@pytest.mark.parametrize(
    ("sent", "of_new"),
    [
        ("from: of-%s, " + UNUSED_PORT, "rejected"),
        ("from: of-%s, to: {service: web, via: clusterIP}, send: {protocol: ICMP}", "rejected"),
        ("from: of-%s, " + UNASSIGNED, "dropped"),
        ("from: %s, " + WITHOUT_ENDPOINT, "rejected"),
    ],
    ids=["an unused port", "an echo request", "an unassigned address", "a node's own packet without endpoint"],
)
def test_what_modes_do_otherwise_each_node_does_by_its_own(sent: str, of_new: str) -> None:
    assert outcomes(sent % "old") == ["untranslated"] * 3
    assert outcomes(sent % "new") == ["untranslated", of_new, "untranslated"]


def test_each_node_opens_node_ports_where_its_own_mode_does() -> None:
    assert outcomes(BY_HOST % "172.18.0.98") == ["delivered"] * 3
    assert outcomes(BY_HOST % "172.18.0.99") == ["delivered", "refused", "delivered"]
    assert outcomes(LOCALHOST % ("old", "old")) == ["delivered"] * 3
    assert outcomes(LOCALHOST % ("new", "new")) == ["delivered", "refused", "delivered"]


@pytest.mark.parametrize("sender", ["of-old", "of-new", "old", "new", "outside"])
@pytest.mark.parametrize("entry", ["old", "new"])
def test_services_serve_alike_through_nodes_of_both_modes(sender: str, entry: str) -> None:
    targets = ["via: nodePort, node: " + entry]
    targets += ["via: clusterIP"] if sender != "outside" else [f"via: loadBalancerIP, node: {entry}"]
    for target in targets:
        assembly = assembly_of(f"from: {sender}, to: {{service: web, {target}}}")
        before, beside, after = (answer(assembly, made) for made in (1, 2, 3))
        assert beside.outcomes == (Outcome.DELIVERED,)
        assert beside.reached == before.reached == after.reached
        assert "modes-beside-each-other" in beside.rows["outcome"]
        assert "modes-beside-each-other" not in {*before.rows["outcome"], *after.rows["outcome"]}


def test_a_balancer_leads_to_nodes_of_both_modes() -> None:
    assembly = assembly_of("from: outside, to: {service: web, via: loadBalancerIP}")
    found = answer(assembly, 2)
    assert found.outcomes == (Outcome.DELIVERED,)
    assert {str(seen.address) for end in found.reached for seen in end.sources} == {
        str(each) for end in answer(assembly, 1).reached for each in (seen.address for seen in end.sources)
    }
    assert found.rows["endpoints"][-1] == "shares/even"


@pytest.mark.parametrize(
    ("mode", "rows"), [("ipvs", ["shares/scheduled", "shares/even"]), ("iptables", ["shares/even"])]
)
def test_the_shares_are_those_of_the_nodes_that_choose(mode: str, rows: list[str]) -> None:
    assembly = assembly_of("from: outside, to: {service: web, via: loadBalancerIP}", mode)
    assert [each for each in answer(assembly, 2, mode).rows["endpoints"] if each.startswith("shares")] == rows


def test_a_node_whose_proxy_is_beyond_the_rows_is_so_alone() -> None:
    beyond = ["restart", "userspace", "iptables"]
    assert answer(assembly_of("from: of-old, " + UNUSED_PORT, actions=beyond), 2).outcomes == (Outcome.UNTRANSLATED,)
    of_new = assembly_of("from: of-new, " + UNUSED_PORT, actions=beyond)
    assert ["mode userspace" in answer(of_new, made).outside for made in (1, 2, 3)] == [False, True, False]
    healthz = assembly_of("from: outside, to: {address: 172.18.0.99, port: 10256}", actions=beyond)
    assert ["mode userspace" in answer(healthz, made).outside for made in (1, 2, 3)] == [False, True, False]


def test_what_is_for_no_frontend_passes_any_proxy() -> None:
    beyond = ["userspace", "iptables"]
    to_pod = assembly_of("from: of-old, to: {pod: web-2, port: 8080}", actions=beyond)
    through = assembly_of("from: of-old, to: {service: web, via: clusterIP}", actions=beyond)
    assert answer(to_pod, 1).reached == answer(to_pod, 2).reached
    assert answer(to_pod, 1).reached[0].name == "web-2"
    assert answer(through, 1).reached == answer(through, 2).reached
    assert len(answer(through, 1).reached) == 2


def test_mode_nftables_is_not_promised_before_it_is_beta() -> None:
    assembly = assembly_of("from: of-new, to: {service: web, via: clusterIP}", version=(1, 30))
    assert answer(assembly, 1, version=(1, 30)).outcomes == (Outcome.DELIVERED,)
    assert "alpha" in answer(assembly, 2, version=(1, 30)).outside


@pytest.mark.parametrize(
    ("actions", "in_reach"),
    [
        (["stop", "start", "restart"], [False, True, True]),
        (["kill", "start", "flush"], [False, True, False]),
        (["flush", "iptables", "kill"], [False, True, False]),
    ],
)
def test_a_proxy_that_starts_anew_is_within_the_reach_again(actions: list[str], in_reach: list[bool]) -> None:
    assembly = assembly_of("from: of-new, to: {service: web, via: clusterIP}", actions=actions)
    first, *later = (outside_reach(assembly, each, (1, 37)) for each in assembly.scenario.all_probes)
    assert first == ""
    assert [not each for each in later] == in_reach


TERMINATING = CLUSTER.replace("ports: [8080]}", "ports: [8080], ready: false, serving: true, terminating: true}")


@pytest.mark.parametrize(
    ("spec", "sent", "of_new", "row"),
    [
        (TERMINATING + "engines: {new: v1.25/iptables}", "to: {service: web, via: clusterIP}", "rejected", ""),
        (CLUSTER + "engines: {new: v1.30/nftables}", "to: {service: web, via: clusterIP}", "", "alpha"),
        (CLUSTER + "engines: {new: v1.34/nftables}", UNUSED_PORT, "rejected", ""),
        (CLUSTER + "engines: {new: {engine: v1.32/nftables}}", UNASSIGNED, "untranslated", ""),
    ],
)
def test_each_node_does_what_its_own_version_does(spec: str, sent: str, of_new: str, row: str) -> None:
    found = {sender: answer(assembly_of(f"from: of-{sender}, {sent}", spec=spec), 0) for sender in ("old", "new")}
    assert "/".join(found["new"].outcomes) == of_new
    assert row in found["new"].outside
    usual = answer(assembly_of(f"from: of-old, {sent}", spec=spec.partition("engines")[0]), 0)
    assert (found["old"].outcomes, found["old"].reached) == (usual.outcomes, usual.reached)


def test_a_mode_keeps_the_version_that_the_node_had() -> None:
    spec = CLUSTER + "engines: {new: v1.32/iptables}"
    assembly = assembly_of("from: of-new, " + UNASSIGNED, spec=spec, actions=["nftables", "v1.37/nftables"])
    assert ["/".join(answer(assembly, made).outcomes) for made in (1, 2)] == ["untranslated", "dropped"]


@pytest.mark.parametrize(
    ("patch", "sent", "changed"),
    [
        ("{iptables: {masqueradeAll: true}}", "from: of-%s, to: {service: web, via: clusterIP}", "source"),
        (
            '{nodePortAddresses: ["10.0.0.0/8"]}',
            "from: outside, to: {service: web, via: nodePort, node: %s}",
            "outcome",
        ),
        ('{clusterCIDR: "10.250.0.0/16"}', "from: of-%s, to: {service: web, via: clusterIP}", "source"),
        ("{bindAddress: 172.18.0.99, nodePortAddresses: [primary]}", BY_HOST.replace("%s", "172.18.0.3"), "outcome"),
    ],
)
def test_each_node_does_what_its_own_configuration_says(patch: str, sent: str, changed: str) -> None:
    spec = f"{CLUSTER}engines: {{new: {{configuration: {patch}}}}}"
    names = ["old", "new"] if "%s" in sent else ["new"]
    for name in names:
        asked = sent.replace("%s", name)
        found, usual = (answer(assembly_of(asked, spec=each), 0) for each in (spec, CLUSTER))
        assert (found.rows.get(changed) != usual.rows.get(changed)) is (name == "new")
        assert (found.reached != usual.reached) is (name == "new")


def test_a_patch_of_a_step_holds_from_the_step_on() -> None:
    patch = "{configuration: {iptables: {masqueradeAll: true}}}"
    assembly = assembly_of("from: of-new, to: {service: web, via: clusterIP}", actions=["restart", patch, "restart"])
    rows = ["masquerade-all" in answer(assembly, made).rows["source"] for made in range(4)]
    assert rows == [False, False, True, True]


def test_a_proxy_without_its_version_is_outside_the_reach() -> None:
    def reasons(engine: str) -> list[str]:
        assembly = assembly_of("from: of-new, to: {service: web, via: clusterIP}", actions=["restart", engine])
        return [outside_reach(assembly, each, (1, 37)) for each in assembly.scenario.all_probes]

    assert reasons("v1.36/nftables") == reasons("kube-proxy@v1.36/nftables") == ["", "", ""]
    first, second, third = reasons("kube-proxy/nftables")
    assert (first, second) == ("", "")
    assert "without its version" in third


def test_a_node_leaves_external_ips_alone_where_its_feature_gate_is_off() -> None:
    off = "{configuration: {featureGates: {AllowServiceExternalIPs: false}}}"
    of_new, of_old = (assembly_of(f"from: {each}, {WITHOUT_ENDPOINT}", actions=(off,)) for each in ("of-new", "of-old"))
    found = [[*answer(of, made).outcomes] for of, made in ((of_new, 0), (of_new, 1), (of_old, 1))]
    assert found == [[Outcome.REJECTED], [Outcome.UNTRANSLATED], [Outcome.REJECTED]]
    assert answer(of_new, 1).rows == {"outcome": ("external-ips-off",)}
