"""What a probe without ``expect``, or with ``also: promises``, is judged by; and where the promises leave it open."""

import pytest
from golden_words import Told
from msgspec.structs import replace
from oracle_agreement import CATALOGUE
from oracle_worlds import NEWEST

from proxylab.cluster.configuration import Mode, Scheduler
from proxylab.errors import ScenarioError
from proxylab.oracle.promised import promised_cases, with_promises
from proxylab.oracle.rows import rows
from proxylab.scenario.cases import cases
from proxylab.scenario.expect import (
    PROMISED,
    Backend,
    Expect,
    HttpExpect,
    Masqueraded,
    Preserved,
    SourceAddress,
    SourceByBackend,
)
from proxylab.scenario.load import load_scenario, parse_scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.versions import Version
from proxylab.scenario.words import Outcome, Reply, Spread
from proxylab.verdict.model import expectations

HEAD = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: world}
spec:
  nodes: {node-a: {}, node-b: {}, node-c: {}}
  hosts: {outside: {}}
  pods:
    web: {replicas: 2, nodes: [node-a, node-b], labels: {app: web}, ports: [8080]}
    client: {nodes: [node-a]}
  probes:
"""
SERVICES = """
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
---
apiVersion: v1
kind: Service
metadata: {name: local}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  healthCheckNodePort: 32000
  loadBalancerSourceRanges: [192.0.2.0/24]
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30081}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.9}]}}
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec: {sessionAffinity: ClientIP, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec:
  type: LoadBalancer
  loadBalancerSourceRanges: [192.0.2.0/24]
  ports: [{port: 80, targetPort: 8080, nodePort: 30082}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.10}]}}
"""


def filled(probe: str, mode: str = "iptables", version: Version | None = NEWEST, further: str = "") -> Probe:
    """The probe with what is promised of it."""
    scenario = parse_scenario(f"{HEAD}  - {{name: it, {probe}}}\n{SERVICES}{further}", "world.lab.yaml")
    (case,) = promised_cases(scenario, mode, version)
    return case.probes[0]


def test_a_probe_without_expect_has_all_that_is_promised_of_a_delivered_flow() -> None:
    expect = filled("from: client, to: {service: web, via: clusterIP}").expect
    assert expectations(expect) == ("outcome", "backends", "source", "spread")
    assert (expect.outcome, expect.backends) == (Outcome.DELIVERED, (Backend("web-1", 8080), Backend("web-2", 8080)))
    assert (expect.source, expect.spread, expect.undecided) == (Preserved(), Spread.EVEN, "")


def test_each_promised_key_names_the_rows_from_which_it_follows() -> None:
    expect = filled("from: client, to: {service: web, via: nodePort, node: node-b}").expect
    assert expect.follows["outcome"] == ("frontend-nodePort", "node-port-addresses-default/all")
    assert "masquerade-external-cluster" in expect.follows["source"]
    assert {*expectations(expect), "endpoint", "reply"} == set(expect.follows)
    assert {row for each in expect.follows.values() for row in each} <= rows().keys()


def test_a_source_may_differ_by_backend() -> None:
    expect = filled("from: web-1, to: {service: web, via: clusterIP}").expect
    assert expect.source == SourceByBackend({"web-1": Masqueraded(), "web-2": Preserved()})


def test_a_flow_that_is_turned_away_has_its_place_and_its_error() -> None:
    expect = filled("from: client, to: {service: empty, via: clusterIP}").expect
    assert (expectations(expect), expect.outcome, expect.at) == (("outcome", "at", "icmp"), Outcome.REJECTED, "node-a")
    expect = filled("from: outside, to: {service: local, via: nodePort, node: node-c}").expect
    assert (expect.outcome, expect.at, expect.icmp) == (Outcome.DROPPED, "node-c", None)


def test_a_health_check_is_promised_an_answer_and_needs_no_outcome() -> None:
    probe = filled("from: outside, to: {service: local, via: healthCheckNodePort, node: node-c}")
    assert probe.expect.http == HttpExpect(status=503, local_endpoints=0)
    assert expectations(probe.expect) == ("http",)


def test_an_answer_may_come_from_the_endpoint_itself() -> None:
    text = HEAD.replace("nodes: {node-a", "network: {podNetwork: bridge}\n  nodes: {node-a")
    scenario = parse_scenario(f"{text}  - {{name: it, from: client, to: {{pod: web-1}}}}\n{SERVICES}", "world.lab.yaml")
    (case,) = promised_cases(scenario, "iptables", NEWEST)
    expect = case.probes[0].expect
    assert (expect.backends, expect.source, expect.reply) == ((Backend("web-1", 8080),), Preserved(), None)


def test_no_answer_is_promised_of_a_pod_that_answers_nothing() -> None:
    text = HEAD.replace("ports: [8080]", "ports: [{port: 8080, protocol: UDP, silent: true}]")
    probe = "{name: it, from: client, to: {pod: web-1, port: 8080}, send: {protocol: UDP}}"
    (case,) = promised_cases(parse_scenario(f"{text}  - {probe}\n", "world.lab.yaml"), "iptables", NEWEST)
    expect = case.probes[0].expect
    assert (expect.outcome, expect.reply) == (Outcome.DELIVERED, Reply.NONE)


@pytest.mark.parametrize(
    ("send", "spread"), [("{}", Spread.STICKY), ("{flows: 31}", Spread.STICKY), ("{flows: 5}", None)]
)
def test_affinity_is_promised_of_one_client_where_the_flows_can_show_it(send: str, spread: Spread | None) -> None:
    assert filled(f"from: client, to: {{service: sticky, via: clusterIP}}, send: {send}").expect.spread is spread


SCHEDULED = """
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
ipvs: {scheduler: %s}
"""


@pytest.mark.parametrize("scheduler", Scheduler)
def test_equal_shares_are_promised_of_schedulers_that_take_turns_and_of_no_other(scheduler: Scheduler) -> None:
    probe = "from: client, to: {service: web, via: clusterIP}"
    expect = filled(probe, "ipvs", further=SCHEDULED % scheduler).expect
    if scheduler in ("rr", "wrr"):
        assert (len(expect.backends), expect.spread) == (2, Spread.EVEN)
        assert expect.follows["spread"][-1] == "shares/scheduled"
    else:
        # A hash may lead all flows of one client to one endpoint; each must reach an endpoint all the same.
        assert expectations(expect) == ("outcome", "source")
        assert "shares/scheduled" in expect.follows["endpoint"]


def test_affinity_is_promised_under_each_scheduler() -> None:
    probe = "from: client, to: {service: sticky, via: clusterIP}"
    assert filled(probe, "ipvs", further=SCHEDULED % "sh").expect.spread is Spread.STICKY


def test_one_endpoint_is_promised_under_each_scheduler() -> None:
    probe = "from: outside, to: {service: local, via: nodePort, node: node-a}"
    assert "backends" in expectations(filled(probe, "ipvs", further=SCHEDULED % "dh").expect)


def test_an_echo_request_has_no_port() -> None:
    expect = filled("from: client, to: {pod: web-1}, send: {protocol: ICMP}").expect
    assert (expect.backends, expect.source) == ((Backend("web-1"),), Preserved())


def test_what_goes_on_untranslated_ends_at_no_node() -> None:
    expect = filled("from: client, to: {service: web, via: clusterIP}").expect
    unused = filled("from: client, to: {address: 10.96.1.1, port: 9}, send: {as: packet}").expect
    assert (expect.outcome, unused.outcome, unused.at) == (Outcome.DELIVERED, Outcome.UNTRANSLATED, None)


def test_an_answer_past_the_node_has_its_row() -> None:
    file = CATALOGUE / "hairpin/same-node-reply-past-a-bridge.lab.yaml"
    found = []
    for case in cases(load_scenario(file), "iptables", NEWEST):
        bare = replace(case, probes=tuple(replace(each, expect=PROMISED) for each in case.probes))
        found += [each.expect for each in with_promises(bare, "iptables", NEWEST).probes if each.expect.reply]
    assert {each.follows["reply"] for each in found} == {("answer-past-the-node",)}


def test_a_name_that_gives_several_pods_may_reach_each_and_every_step_is_filled_in() -> None:
    text = f"""{HEAD}  - {{name: by name, from: client, to: {{service: each, via: dnsName}}}}
  steps:
  - {{name: one, probes: [{{name: a, from: client, to: {{service: web, via: clusterIP}}}}]}}
  - {{name: two, probes: [{{name: b, from: client, to: {{service: web, via: clusterIP}}}}]}}
{SERVICES}---
apiVersion: v1
kind: Service
metadata: {{name: each}}
spec: {{clusterIP: None, selector: {{app: web}}, ports: [{{port: 8080}}]}}
"""
    (case,) = promised_cases(parse_scenario(text, "world.lab.yaml"), "iptables", NEWEST)
    by_name, *in_steps = case.all_probes
    assert by_name.expect.backends == (Backend("web-1", 8080), Backend("web-2", 8080))
    assert by_name.expect.follows["name"] == ("name-of-headless",)
    assert [expectations(each.expect)[1] for each in in_steps] == ["backends", "backends"]


@pytest.mark.parametrize(("flows", "spread"), [(31, None), (940, None), (941, Spread.EVEN)])
def test_a_spread_is_promised_where_the_flows_can_show_it(flows: int, spread: Spread | None) -> None:
    assert (
        filled(f"from: client, to: {{service: web, via: clusterIP}}, send: {{flows: {flows}}}").expect.spread is spread
    )


def test_what_the_author_writes_stays_and_the_promises_add_the_rest() -> None:
    written = "expect: {outcome: delivered, source: 10.0.0.1, also: promises}"
    expect = filled(f"from: client, to: {{service: web, via: clusterIP}}, {written}").expect
    assert isinstance(expect.source, SourceAddress)
    assert str(expect.source.address) == "10.0.0.1"
    assert expectations(expect) == ("outcome", "backends", "source", "spread")
    assert "source" not in expect.follows
    assert "backends" in expect.follows


def test_some_keys_without_also_are_judged_alone() -> None:
    written = filled(
        "from: client, to: {service: web, via: clusterIP}, expect: {outcome: delivered, source: preserved}"
    )
    assert expectations(written.expect) == ("outcome", "source")
    assert not written.expect.follows


def test_an_outcome_that_contradicts_the_promise_is_inconclusive_and_stays(told: Told) -> None:
    written = "expect: {outcome: dropped, also: promises}"
    expect = filled(f"from: client, to: {{service: web, via: clusterIP}}, {written}").expect
    assert expect.undecided == told()
    assert expectations(expect) == ("outcome", "also")


@pytest.mark.parametrize(
    ("mode", "version", "why"),
    [
        ("userspace", NEWEST, "a process of the node ends connections"),
        ("iptables", (1, 23), "since Kubernetes 1.24"),
        ("iptables", None, "the version of the proxy is not known"),
    ],
)
def test_where_the_oracle_does_not_know_nothing_is_promised(mode: str, version: Version | None, why: str) -> None:
    expect = filled("from: client, to: {service: web, via: clusterIP}", mode, version).expect
    assert why in expect.undecided
    assert expectations(expect) == ("also",)


def test_where_kubernetes_leaves_it_open_one_flow_may_end_either_way() -> None:
    target = "from: outside, to: {service: empty, via: loadBalancerIP, node: node-a}"
    probe = filled(target)
    found = [probe.expect, *probe.expect.either]
    assert [each.outcome for each in found] == [Outcome.REJECTED, Outcome.DROPPED]
    assert [each.at for each in found] == ["node-a", "node-a"]
    assert probe.send.flows == 1
    assert "leave send.flows out" in filled(f"{target}, send: {{flows: 5}}").expect.undecided
    chosen = filled(f"{target}, expect: {{outcome: dropped, also: promises}}").expect
    assert (chosen.outcome, chosen.either, chosen.icmp) == (Outcome.DROPPED, (), None)


def test_some_keys_need_an_outcome_or_also() -> None:
    with pytest.raises(ScenarioError, match="outcome: is missing, and `also: promises`, which stands for it"):
        filled("from: client, to: {service: web, via: clusterIP}, expect: {backends: [web-1]}")


def test_a_scenario_without_such_probes_is_not_laid_out() -> None:
    scenario = load_scenario(CATALOGUE / "clusterip/from-a-pod.lab.yaml")
    (case,) = cases(scenario, "iptables", NEWEST)
    assert with_promises(case, "iptables", NEWEST) is case


@pytest.mark.parametrize("mode", [Mode.IPTABLES, Mode.NFTABLES])
@pytest.mark.parametrize("folder", ["nodeport", "loadbalancer", "topology", "hairpin"])
def test_without_their_expectations_probes_of_the_catalogue_get_the_same_outcomes(mode: Mode, folder: str) -> None:
    agreed = 0
    for file in sorted((CATALOGUE / folder).glob("*.lab.yaml")):
        for case in cases(load_scenario(file), mode, NEWEST):
            bare = replace(case, probes=tuple(replace(each, expect=PROMISED) for each in case.probes))
            for written, promised in zip(case.probes, with_promises(bare, mode, NEWEST).probes, strict=True):
                if promised.expect.undecided or written.exceptions:
                    continue
                agreed += 1
                assert _agree(written.expect, promised.expect), f"{file.name}: {written.name}: {promised.expect}"
    assert agreed > 20


def _agree(written: Expect, promised: Expect) -> bool:
    """Whether the author's outcome is one of those promised; what reaches the dialled address is not translated."""
    outcomes = {promised.outcome, *(each.outcome for each in promised.either)}
    is_direct = written.outcome is Outcome.UNTRANSLATED and "no-frontend" not in promised.follows.get("outcome", ())
    replies = promised.reply in (None, Reply.UNTRANSLATED) or promised.outcome is Outcome.DELIVERED
    return replies and (written.outcome in outcomes or (is_direct and Outcome.DELIVERED in outcomes))
