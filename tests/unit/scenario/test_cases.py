"""A matrix becomes cases, each a scenario of its own."""

from pathlib import Path

import pytest
from broken_scenarios import BASE

from proxylab.addresses import Family
from proxylab.plan.assembly import assemble
from proxylab.scenario.cases import cases, kernel_of
from proxylab.scenario.load import load_scenario, parse_scenario
from proxylab.scenario.model import MatrixCase, Scenario
from proxylab.scenario.words import Outcome

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"

EXCEPT = """\
    except:
    - {when: {podNetwork: bridge, net.ipv4.ip_forward: 0}, expect: {outcome: dropped}, because: nothing forwards}
    - {when: {mode: ipvs, podNetwork: ptp}, expect: {outcome: rejected}, because: so it is}
---
"""


def scenario(matrix: str, exceptions: str = "") -> Scenario:
    text = BASE.replace("spec:\n  nodes", f"spec:\n  matrix: {matrix}\n  nodes", 1)
    return parse_scenario(text.replace("---\n", exceptions or "---\n", 1), "f")


def test_a_scenario_without_matrix_is_its_only_case() -> None:
    (case,) = cases(parse_scenario(BASE, "f"), "iptables")
    assert case.case == MatrixCase(mode="iptables")
    assert [probe.name for probe in case.probes] == ["first"]


def test_ids_name_the_values_in_the_order_of_the_axes_whatever_the_order_of_the_file() -> None:
    found = scenario("{net.ipv4.ip_forward: [1], hairpin: [none], podNetwork: [bridge, ptp], families: [[IPv6, IPv4]]}")
    names = [probe.name for case in cases(found, "iptables") for probe in case.probes]
    assert names == ["first[ipv6+ipv4-bridge-none-ip_forward=1]", "first[ipv6+ipv4-ptp-none-ip_forward=1]"]


def test_a_case_names_its_kernel_and_one_without_that_axis_runs_where_it_is_sent() -> None:
    found = cases(scenario("{kernel: [host, /boot/linux], podNetwork: [ptp]}"), "iptables")
    assert [case.case.id for case in found] == ["ptp-host", "ptp-.boot.linux"]
    assert [kernel_of(case, "uml") for case in found] == ["host", "/boot/linux"]
    (plain,) = cases(parse_scenario(BASE, "f"), "iptables")
    assert kernel_of(plain, "uml") == "uml"


GATES = "{featureGates: {AllowServiceExternalIPs: [true, false]}}"
CONFIGURED = """
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
featureGates: {WatchListClient: false, AllowServiceExternalIPs: true}
"""


def test_feature_gates_are_axes_over_those_of_the_configuration() -> None:
    text = BASE.replace("spec:\n  nodes", f"spec:\n  matrix: {GATES}\n  nodes", 1)
    found = cases(parse_scenario(text.rstrip() + CONFIGURED, "f"), "iptables")
    assert [case.case.id for case in found] == ["AllowServiceExternalIPs=true", "AllowServiceExternalIPs=false"]
    assert [case.proxy and case.proxy.feature_gates for case in found] == [
        {"WatchListClient": False, "AllowServiceExternalIPs": True},
        {"WatchListClient": False, "AllowServiceExternalIPs": False},
    ]
    without = cases(scenario(GATES), "iptables")
    assert [case.proxy and case.proxy.feature_gates for case in without] == [
        {"AllowServiceExternalIPs": True},
        {"AllowServiceExternalIPs": False},
    ]


def test_proxies_with_a_configuration_of_their_own_have_the_gates_too() -> None:
    text = BASE.replace("spec:\n  nodes", f"spec:\n  matrix: {GATES}\n{OWN}  nodes", 1)
    for case, value in zip(cases(parse_scenario(text, "f"), "iptables"), (True, False), strict=True):
        own = [case.engines["node-a"].settings, case.steps[0].change.engines["node-b"].settings]
        assert [each and each.feature_gates for each in own] == [{"AllowServiceExternalIPs": value}] * 2


OWN = """\
  engines: {node-a: {configuration: {iptables: {masqueradeAll: true}}}}
  steps:
  - {name: changed, change: {engines: {node-b: {configuration: {iptables: {masqueradeAll: true}}}}}}
"""


def test_an_exception_holds_in_the_cases_of_its_gates() -> None:
    exception = """\
    except:
    - {when: {featureGates: {AllowServiceExternalIPs: false}}, expect: {outcome: dropped}, because: it is off}
---
"""
    outcomes = [case.probes[0].expect.outcome for case in cases(scenario(GATES, exception), "iptables")]
    assert outcomes == [Outcome.DELIVERED, Outcome.DROPPED]


FIXED = """\
spec:
  matrix: {families: [[IPv4], [IPv6]]}
  network: {routers: {nodes: [172.18.0.254, 'fd00:172:18::fe'], outside: 203.0.113.254}}
  nodes:
    node-a:
      conntrack:
      - {protocol: UDP, from: '10.244.0.9:40000', to: '10.96.0.8:53'}
      - {protocol: UDP, from: '[fd00:10:244::9]:40000', to: '[fd00:10:96::8]:53'}
"""


@pytest.mark.parametrize(
    ("number", "own"),
    [
        (0, ["172.18.0.254", "203.0.113.254", "203.0.113.1", "10.244.0.9"]),
        (1, ["fd00:172:18::fe", "2001:db8:113::1", "2001:db8:113::9", "fd00:10:244::9"]),
    ],
    ids=["IPv4", "IPv6"],
)
def test_what_the_author_fixes_holds_in_the_cases_of_its_family(number: int, own: list[str]) -> None:
    text = BASE.replace("spec:\n  nodes:\n    node-a: {}\n", FIXED, 1)
    text = text.replace("outside: {}", "outside: {addresses: [203.0.113.1, '2001:db8:113::9']}", 1)
    plan = assemble([*cases(parse_scenario(text, "f"), "iptables")][number]).plan
    router = {
        each.device: each.interface.ip
        for each in plan.namespace("router").addresses
        if not each.interface.ip.is_link_local
    }
    (host, *_) = plan.addresses_by_name["outside"]
    (known,) = plan.namespace("node-a").conntrack
    assert [*map(str, (router["nodes"], router["outside"], host, known.source.address))] == own


def test_every_axis_is_set_where_it_belongs() -> None:
    found = scenario("{families: [[IPv6]], podNetwork: [bridge], interNode: [vxlan], hairpin: [none], net.core.x: [7]}")
    (case,) = cases(found, "iptables")
    network = case.network
    assert network.families == (Family.IPV6,)
    assert (network.pod_network, network.inter_node, network.hairpin) == ("bridge", "vxlan", "none")
    assert [str(cidr) for cidr in network.pod_cidrs] == ["fd00:10:244::/56"]
    assert [node.sysctls for node in case.nodes] == [{"net.core.x": "7"}] * 2
    assert case.matrix.axes == {}


def test_each_case_has_the_networks_of_its_own_families() -> None:
    found = scenario("{families: [[IPv4], [IPv6], [IPv6, IPv4]]}")
    assert [[each.version for each in case.network.service_cidrs] for case in cases(found, "x")] == [[4], [6], [6, 4]]


BOTH_FAMILIES = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: both}
spec:
  network: {routed: [{network: 198.51.100.7, nodes: [node-a]}, {network: 'fd07::7', nodes: [node-a]}]}
  matrix: {families: [[IPv4], [IPv6]]}
  nodes:
    node-a:
      addresses: [192.0.2.9, 'fd09::9']
      routes: [{to: 198.51.100.0/24, device: eth0}, {to: 'fd08::/64', device: eth0}]
      daemons: {kubelet: {port: 10250, address: 'fd09::9'}}
  pods: {client: {addresses: [10.244.0.99, 'fd00:10:244::99']}}
  loadBalancers: {edge: {pool: [192.0.2.16/28, 'fd0a::/64']}}
"""


def test_what_is_written_for_both_families_is_divided_among_the_cases() -> None:
    for version, case in zip((4, 6), cases(parse_scenario(BOTH_FAMILIES, "f"), "iptables"), strict=True):
        node, client = case.nodes[0], case.pods[0]
        found = [*(each.interface for each in node.addresses), *(each.destination for each in node.routes)]
        found += [*client.addresses, *case.load_balancers[0].pool, *(each.network for each in case.network.routed)]
        assert [each.version for each in found] == [version] * 5
        assert len(node.daemons) == (version == 6)
        assemble(case)


OVER_BOTH = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: dual}
spec:
  matrix: {families: [[IPv4, IPv6], [IPv6]], family: [IPv4, IPv6], podNetwork: [bridge]}
  nodes: {node-a: {}}
  pods: {echo: {ports: [8080]}, client: {}}
  probes:
  - name: a pod
    from: client
    to: {pod: echo}
    expect: {outcome: delivered, source: preserved}
    except: [{when: {family: IPv6}, expect: {outcome: dropped}, because: so it is}]
  - {name: of one family, from: client, to: {pod: echo, family: IPv4}, expect: {outcome: delivered, source: preserved}}
  - {name: an address, from: client, to: {address: 'fd07::7', port: 1}, expect: {outcome: dropped}}
  streams:
    pages: {from: client, to: {pod: echo}}
    elsewhere: {from: client, to: {address: 'fd07::7', port: 1}}
  steps:
  - name: a step
    until: {backends: {pages: echo}}
    expect: {pages: {lost: 0}, elsewhere: {lost: 1}}
    probes: [{name: asks, from: client, to: {pod: echo}, expect: {outcome: delivered, source: preserved}}]
"""


def test_the_axis_family_multiplies_what_is_sent_and_not_the_labs() -> None:
    both, _ = cases(parse_scenario(OVER_BOTH, "f"), "iptables")
    assert both.case.id == "ipv4+ipv6-bridge"
    assert {probe.name: str(probe.expect.outcome) for probe in both.probes} == {
        "a pod[ipv4+ipv6-ipv4-bridge]": "delivered",
        "a pod[ipv4+ipv6-ipv6-bridge]": "dropped",
        "of one family[ipv4+ipv6-ipv4-bridge]": "delivered",
        "an address[ipv4+ipv6-ipv6-bridge]": "dropped",
    }
    dialled = [resolved.destination.version for resolved in assemble(both).resolved_probes]
    assert dialled == [4, 6, 4, 6, 4, 6]
    assert {both.case.words(each.name) for each in both.judged} == {
        "a pod",
        "of one family",
        "an address",
        "a step: asks",
        "a step",
    }


def test_a_step_expects_of_each_familys_stream_what_is_said_of_the_stream() -> None:
    both, _ = cases(parse_scenario(OVER_BOTH, "f"), "iptables")
    (step,) = both.steps
    assert [each.name for each in both.streams] == ["pages[ipv4]", "pages[ipv6]", "elsewhere[ipv6]"]
    assert list(step.expect.streams) == ["pages[ipv4]", "pages[ipv6]", "elsewhere[ipv6]"]
    assert step.until is not None
    assert step.until.backends == {"pages[ipv4]": "echo", "pages[ipv6]": "echo"}
    assert [probe.name for probe in step.probes] == [
        "a step: asks[ipv4+ipv6-ipv4-bridge]",
        "a step: asks[ipv4+ipv6-ipv6-bridge]",
    ]


def test_in_a_lab_of_one_family_that_one_is_dialled_and_names_are_as_ever() -> None:
    _, alone = cases(parse_scenario(OVER_BOTH, "f"), "iptables")
    assert alone.probes[0].name == "a pod[ipv6-bridge]"
    assert str(alone.probes[0].expect.outcome) == "dropped"
    assert [each.name for each in alone.streams] == ["pages", "elsewhere"]


@pytest.mark.parametrize(
    ("mode", "outcomes"),
    [
        ("iptables", {"ptp-0": "delivered", "ptp-1": "delivered", "bridge-0": "dropped", "bridge-1": "delivered"}),
        ("ipvs", {"ptp-0": "rejected", "ptp-1": "rejected", "bridge-0": "dropped", "bridge-1": "delivered"}),
    ],
)
def test_exceptions_hold_in_their_cases_and_in_no_other(mode: str, outcomes: dict[str, str]) -> None:
    found = cases(scenario("{podNetwork: [ptp, bridge], net.ipv4.ip_forward: [0, 1]}", EXCEPT), mode)
    assert {
        case.case.id.replace("ip_forward=", ""): str(probe.expect.outcome) for case in found for probe in case.probes
    } == outcomes


def test_the_expectation_of_an_exception_keeps_its_own_position() -> None:
    found = cases(scenario("{podNetwork: [bridge, ptp], net.ipv4.ip_forward: [0]}", EXCEPT), "iptables")
    (probe,) = found[0].probes
    assert (probe.expect.outcome, probe.expect.position.line) == (Outcome.DROPPED, 19)


def test_a_mode_that_the_matrix_leaves_out_has_no_case() -> None:
    found = scenario("{mode: [ipvs, nftables]}")
    assert cases(found, "iptables") == ()
    assert [case.case.id for case in cases(found, "ipvs")] == ["ipvs"]


def test_the_tree_has_no_two_probes_of_one_id() -> None:
    for file in SCENARIOS.rglob("*.lab.yaml"):
        names = [probe.name for case in cases(load_scenario(file), "iptables") for probe in case.probes]
        assert len(names) == len(set(names)), file
