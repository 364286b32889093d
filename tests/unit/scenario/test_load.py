"""What a scenario file without mistakes becomes."""

import os
import re
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from broken_scenarios import BASE, noted
from golden_words import Told

from proxylab.addresses import Family, Protocol
from proxylab.errors import ScenarioError
from proxylab.scenario.expect import Backend, Masqueraded, NodeDevice, Preserved, SourceAddress, SourceByBackend
from proxylab.scenario.load import load_scenario, parse_scenario
from proxylab.scenario.probes import AddressTarget, HostTarget, OneAddress, PodTarget, Send, ServiceTarget, Source
from proxylab.scenario.source import MOST_BYTES
from proxylab.scenario.words import Frontend, Outcome, Position, Spread

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"


def changed(**edits: str) -> str:
    """The base scenario with another ``to``, ``from``, ``expect``, or a ``send``."""
    text = BASE
    text = text.replace("{service: echo, via: clusterIP}", edits.get("to", "{service: echo, via: clusterIP}"))
    text = text.replace("from: client", f"from: {edits.get('sender', 'client')}\n    send: {edits.get('send', '{}')}")
    return text.replace("{outcome: delivered, source: preserved}", edits.get("expect", "{outcome: dropped}"))


def probe_of(**edits: str):  # type: ignore[no-untyped-def]
    (probe,) = parse_scenario(changed(**edits), "f").probes
    return probe


@pytest.mark.parametrize("file", sorted(SCENARIOS.rglob("*.lab.yaml")), ids=lambda file: file.name)
def test_scenarios_of_the_tree_are_read_and_explain_themselves(file: Path) -> None:
    scenario = load_scenario(file)
    assert scenario.judged
    assert scenario.links
    assert len(scenario.description) > 100


def test_a_whole_scenario() -> None:
    scenario = parse_scenario(BASE, "f")
    assert (scenario.file, scenario.name, scenario.description, scenario.links) == ("f", "base", "", ())
    assert [(node.name, node.position.line) for node in scenario.nodes] == [("node-a", 6), ("node-b", 7)]
    assert [(host.name, host.position) for host in scenario.hosts] == [("outside", Position("f", 11, 11))]
    echo, client = scenario.pods
    assert echo.pod_names == ("echo-1", "echo-2")
    assert client.pod_names == ("client",)
    assert client.nodes == echo.nodes == ("node-a",), "pods without nodes go on the first node"
    assert [(port.port, port.protocol, port.name) for port in echo.ports] == [(8080, Protocol.TCP, "")]
    (service,) = scenario.services
    assert (service.namespace, service.name) == ("default", "echo")
    (probe,) = scenario.probes
    assert (probe.name, probe.source, probe.target) == (
        "first",
        Source(name="client"),
        ServiceTarget(service="echo", via=Frontend.CLUSTER_IP),
    )
    assert probe.send == Send()
    assert noted(scenario) == ()


def test_positions_of_a_probe_and_of_each_expectation() -> None:
    (probe,) = parse_scenario(BASE, "f").probes
    assert probe.position == Position("f", 13, 5)
    assert probe.expect.position == Position("f", 16, 5)
    assert probe.expect.positions == {"outcome": Position("f", 16, 14), "source": Position("f", 16, 34)}


def test_the_network_has_defaults_and_can_be_another() -> None:
    network = parse_scenario(BASE, "f").network
    assert network.families == (Family.IPV4,)
    assert (network.pod_network, network.inter_node) == ("ptp", "host-gw")
    assert network.pod_cidrs == (ip_network("10.244.0.0/16"),)
    assert network.service_cidrs == (ip_network("10.96.0.0/16"),)
    assert network.node_cidrs == (ip_network("172.18.0.0/16"),)
    assert network.outside_cidrs == (ip_network("203.0.113.0/24"),)
    other = BASE.replace("spec:\n  nodes", "spec:\n  network: {podCIDR: 10.1.0.0/16}\n  nodes")
    assert parse_scenario(other, "f").network.pod_cidrs == (ip_network("10.1.0.0/16"),)


def test_nodes_pods_and_hosts_may_be_empty_in_yaml() -> None:
    text = (
        BASE.replace("node-b: {}", "node-b:").replace("client: {}", "client:").replace("{outside: {}}", "{outside: }")
    )
    assert parse_scenario(text, "f").pods == parse_scenario(BASE, "f").pods


def test_a_node_with_labels_and_sysctls() -> None:
    sysctls = "{net.ipv4.ip_forward: 0, net.ipv4.ip_local_port_range: 1 2}"
    wishes = f"{{labels: {{topology.kubernetes.io/zone: a}}, sysctls: {sysctls}}}"
    (node, _) = parse_scenario(BASE.replace("node-a: {}", f"node-a: {wishes}"), "f").nodes
    assert node.labels == {"topology.kubernetes.io/zone": "a"}
    assert node.sysctls == {"net.ipv4.ip_forward": "0", "net.ipv4.ip_local_port_range": "1 2"}


@pytest.mark.parametrize(
    ("to", "send", "target"),
    [
        ("{service: default/echo, via: clusterIP}", "{}", ServiceTarget(service="echo", via=Frontend.CLUSTER_IP)),
        (
            "{service: echo, namespace: default, port: 80, via: clusterIP}",
            "{}",
            ServiceTarget(service="echo", port=80, via=Frontend.CLUSTER_IP),
        ),
        ("{pod: echo-2}", "{}", PodTarget(pod="echo-2")),
        ("{pod: client, port: 9}", "{protocol: UDP}", PodTarget(pod="client", port=9)),
        ("{host: outside, port: 53}", "{protocol: UDP}", HostTarget(host="outside", port=53)),
        ("{address: 192.0.2.1, port: 53}", "{}", AddressTarget(address=ip_address("192.0.2.1"), port=53)),
    ],
)
def test_targets(to: str, send: str, target: object) -> None:
    assert probe_of(to=to, send=send).target == target


@pytest.mark.parametrize(
    ("to", "send"),
    [
        ("{service: echo, port: dns, via: clusterIP}", "{}"),
        ("{service: echo, port: 53, via: clusterIP}", "{protocol: TCP}"),
        ("{service: echo, via: clusterIP}", "{protocol: UDP}"),
    ],
)
def test_a_port_of_several_is_known_by_its_name_or_the_protocol(to: str, send: str) -> None:
    ports = "  ports:\n  - {name: dns, port: 53, protocol: UDP}\n  - {name: dns-tcp, port: 53}\n"
    text = changed(to=to, send=send).replace("  ports:\n  - port: 80\n", ports)
    assert parse_scenario(text, "f").probes


def test_the_node_that_an_outside_host_enters_by() -> None:
    probe = probe_of(sender="outside", to="{service: echo, via: clusterIP, node: node-b}")
    assert probe.target.node == "node-b"


def test_a_sender_with_address_and_port() -> None:
    probe = probe_of(sender="{name: client, address: 10.244.0.9, port: 4000}")
    assert probe.source == Source(name="client", sends_from=OneAddress(ip_address("10.244.0.9")), port=4000)


@pytest.mark.parametrize(
    ("written", "source"),
    [
        ("preserved", Preserved()),
        ("masqueraded", Masqueraded()),
        (
            "{echo-1: 192.0.2.7, echo-2: masqueraded}",
            SourceByBackend({"echo-1": SourceAddress(ip_address("192.0.2.7")), "echo-2": Masqueraded()}),
        ),
        ("192.0.2.7", SourceAddress(ip_address("192.0.2.7"))),
        ("{node: node-b, device: uplink}", NodeDevice("node-b", "uplink")),
        ("{node: node-b, device: pods}", NodeDevice("node-b", "pods")),
    ],
)
def test_sources(written: str, source: object) -> None:
    assert probe_of(expect=f"{{outcome: delivered, source: {written}}}").expect.source == source


def test_an_expectation_with_all_its_keys() -> None:
    expect = probe_of(
        send="{as: packet, flows: 2000, payload: 64}",
        expect="{outcome: delivered, source: preserved, backends: [echo-1, echo-2], spread: even}",
    ).expect
    assert (expect.outcome, expect.backends, expect.spread) == (
        Outcome.DELIVERED,
        (Backend("echo-1"), Backend("echo-2")),
        Spread.EVEN,
    )
    assert list(expect.positions) == ["outcome", "source", "backends", "spread"]


@pytest.mark.parametrize("outcome", ["rejected", "dropped"])
def test_a_place_where_a_flow_ends(outcome: str) -> None:
    assert probe_of(expect=f"{{outcome: {outcome}, at: node-b/eth0}}").expect.at == "node-b/eth0"


def test_pods_that_are_not_ready_do_not_count_for_a_spread() -> None:
    text = changed(send="{flows: 941}", expect="{outcome: delivered, source: preserved, spread: even}")
    three = text.replace("client: {}", "client: {}\n    late: {labels: {app: echo}, ready: false}")
    assert parse_scenario(three, "f").probes
    published = three.replace("  selector", "  publishNotReadyAddresses: true\n  selector")
    with pytest.raises(ScenarioError, match="uneven spread over 3 backends; needed: 1991"):
        parse_scenario(published, "f")


def test_anchors_aliases_and_merge_keys() -> None:
    text = BASE.replace(
        "    client: {}",
        "    client: &defaults {labels: {tier: front}, ready: false}\n"
        "    other: {<<: *defaults, ready: true}\n"
        "    same: *defaults",
    )
    pods = {pod.name: pod for pod in parse_scenario(text, "f").pods}
    assert pods["other"].labels == pods["same"].labels == {"tier": "front"}
    assert (pods["other"].ready, pods["same"].ready) == (True, False)


def test_a_mistake_behind_an_alias_is_told_where_it_stands(told: Told) -> None:
    text = BASE.replace("client: {}", "client: &wrong {ready: 1}\n    other: *wrong")
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "f")
    assert caught.value.problems == told()


def test_files_with_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.lab.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    scenario = load_scenario(file)
    assert scenario.file == str(file)
    assert scenario.probes[0].position.line == 13


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (BASE.encode().replace(b"first", b"f\xffirst"), "13:12: the file is not UTF-8 text; save it as UTF-8"),
        (BASE.encode("utf-16"), "1:1: the file is not UTF-8 text; save it as UTF-8"),
        (b"#" * (MOST_BYTES + 1), "1:1: the file has more than 64 MiB; split the scenario"),
    ],
    ids=["a byte", "UTF-16", "too large"],
)
def test_files_that_are_no_text(tmp_path: Path, data: bytes, problem: str) -> None:
    file = tmp_path / "a.lab.yaml"
    file.write_bytes(data)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(file)
    assert caught.value.problems == (f"{file}:{problem}",)


def test_a_large_cluster_fits(tmp_path: Path) -> None:
    file = tmp_path / "a.lab.yaml"
    file.write_text(BASE + "# more\n" * 500_000)
    assert load_scenario(file).probes


FIFO = "the file cannot be read: it is a FIFO or a device; name a regular file"


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    fifo = tmp_path / "a.lab.yaml"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/zero")):
        with pytest.raises(ScenarioError) as caught:
            load_scenario(path)
        assert caught.value.problems == (f"{path}:1:1: {FIFO}",)


def test_a_manifest_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "service.yaml")
    file = tmp_path / "a.lab.yaml"
    file.write_text(BASE.replace("spec:\n", "spec:\n  manifests: [service.yaml]\n", 1))
    with pytest.raises(ScenarioError, match=re.escape(f"spec.manifests[0]: {FIFO}")):
        load_scenario(file)


def test_a_pipe_that_this_process_was_given_is_read() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        stream.write(BASE)
    try:
        assert load_scenario(Path(f"/dev/fd/{reading}")).probes
    finally:
        os.close(reading)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"missing\.yaml:1:1: the file cannot be read: No such file or directory"):
        load_scenario(tmp_path / "missing.yaml")
    with pytest.raises(ScenarioError, match=r":1:1: the file cannot be read: Is a directory"):
        load_scenario(tmp_path)
    with pytest.raises(ScenarioError, match=r"the file cannot be read: .*embedded null"):
        load_scenario(Path("a\0b"))


def test_names_too_long_for_a_report_are_warned_of() -> None:
    fitting, longer = "p" * 80, "s" * 81
    probe = "{name: NAME, from: client, to: {pod: echo-1}, expect: {outcome: delivered, source: preserved}}"
    steps = f"  steps:\n  - name: {longer}\n    probes: [{probe.replace('NAME', longer)}]\n"
    (spec, services) = BASE.split("\n---\n", 1)
    text = f"{spec}\n  - {probe.replace('NAME', fitting)}\n{steps}---\n{services}"
    warning = f"warning: '{longer[:59]}…' is 81 characters long; at most 80 fit a report"
    assert noted(parse_scenario(text, "f")) == (warning, warning)
