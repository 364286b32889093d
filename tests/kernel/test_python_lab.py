"""The lab of Python tests on a kernel: what a dialogue shows, and that it can show the opposite."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.engines.engine_names import ENGINES
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ScenarioError
from proxylab.evidence.segments import DialogueRecord
from proxylab.plan.dialogue import Turn, client, server
from proxylab.scenario.load import parse_with_probes
from proxylab.scenario.words import Position

OUT_OF_WINDOW = "scenarios/bugs/test_74839_segment_out_of_window.py"
# In a checkout that is not installed, pytest does not find the plugin by its entry point.
PLUGIN = () if "proxylab" in entry_points(group="pytest11").names else ("-p", "proxylab.pytest_plugin")
HANDSHAKE = (client("SYN"), server("SYN ACK"), client("ACK"))

WORLD = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: world}
spec:
  network: {families: [FAMILIES]}
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {nodes: [node-b], labels: {app: echo}, ports: [8080]}
    other: {nodes: [node-b]}
    client: {nodes: [node-a]}
    shared: {nodes: [node-a], hostNetwork: true}
  hosts: {outside: {}}
  probes: []
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {type: NodePort, selector: {app: echo}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
"""


def converse(sender: str, answers: str, turns: tuple[Turn, ...], families: str = "IPv4", **to: str) -> DialogueRecord:
    probe = {
        "name": "a dialogue",
        "from": sender,
        "to": {"service": "echo", "via": "clusterIP", **to},
        "send": {"as": "packet"},
        "expect": {"outcome": "delivered", "source": "preserved"},
    }
    text = WORLD.replace("FAMILIES", families)
    scenario = parse_with_probes(text, "world.lab.yaml", [probe], Position("test.py", 1, 1))
    with shared_session(EngineChoice(ENGINES[0])) as session:
        return session.open(scenario, text).converse(scenario.probes[0], answers, turns)


def run_out_of_window(path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--lab-no-bundles", OUT_OF_WINDOW, *PLUGIN],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*([path] if path else []), str(ROOT / "lab")])},
    )


@pytest.mark.parametrize("families", ["IPv4", "IPv6"])
def test_a_handshake_crosses_the_proxy_and_no_kernel_interferes(families: str) -> None:
    spoken = converse("client", "echo", (*HANDSHAKE, client("PSH ACK", "hello"), server("FIN ACK", "bye")), families)
    assert spoken.doubts == ""
    assert [each.words for each in spoken.arrived("echo")] == ["SYN", "ACK", "PSH ACK, 5 bytes"], str(spoken)
    assert [each.words for each in spoken.arrived("client")] == ["SYN ACK", "FIN ACK, 3 bytes"], str(spoken)
    assert not any(each.is_reset for each in spoken.segments)


def test_who_is_masqueraded_is_answered_by_the_address_that_it_dialled() -> None:
    spoken = converse("outside", "echo", HANDSHAKE, via="nodePort", node="node-a")
    assert spoken.doubts == ""
    (syn, _) = spoken.arrived("echo")
    (greeting,) = spoken.arrived("outside")
    assert str(syn.source) == "172.18.0.2", "the node that took it in masquerades it"
    assert (str(greeting.source), greeting.source_port) == ("172.18.0.2", 30080)


def test_a_reset_of_the_server_is_carried() -> None:
    spoken = converse("client", "echo", (client("SYN"), server("RST ACK")))
    assert [each.words for each in spoken.resets("client")] == ["RST ACK"]


def test_a_server_that_nothing_reaches_stops_the_dialogue_with_words() -> None:
    spoken = converse("client", "other", HANDSHAKE)
    assert "turn 2 (server: SYN ACK) could not be sent: no segment has reached other" in spoken.doubts
    assert {each.turn for each in spoken.segments} == {1}


def test_half_a_handshake_is_invalid_where_only_its_second_half_is_seen() -> None:
    """An ACK without a connection starts no translation, so no translation is reversed."""
    spoken = converse("client", "echo", (client("SYN"), server("SYN ACK"), server("ACK", "stray", ahead=1 << 24)))
    assert not spoken.arrived("client", 3), str(spoken)
    assert spoken.packets_counted_by("--ctstate INVALID") == 1


@pytest.mark.parametrize("families", ["IPv4", "IPv6"])
def test_a_node_hears_what_is_translated_back_and_its_kernel_does_not_interfere(families: str) -> None:
    spoken = converse("node-a", "echo", (*HANDSHAKE, client("PSH ACK", "hello"), server("FIN ACK", "bye")), families)
    assert spoken.doubts == ""
    assert [each.words for each in spoken.arrived("echo")] == ["SYN", "ACK", "PSH ACK, 5 bytes"], str(spoken)
    assert [each.words for each in spoken.arrived("node-a")] == ["SYN ACK", "FIN ACK, 3 bytes"], str(spoken)
    assert {each.source_port for each in spoken.arrived("node-a")} == {80}, str(spoken)
    assert not any(each.is_reset for each in spoken.segments)


@pytest.mark.parametrize(
    ("sender", "receiver", "lacking"), [("shared", "echo", "shared"), ("client", "node-a", "node-a")]
)
def test_who_shares_a_nodes_kernel_cannot_be_kept_out_of_it(sender: str, receiver: str, lacking: str) -> None:
    with pytest.raises(ScenarioError, match=f"'{lacking}' is neither a pod with its own network namespace nor"):
        converse(sender, receiver, HANDSHAKE)


def test_the_exhibit_holds_as_it_stands() -> None:
    done = run_out_of_window()
    assert done.returncode == 0, done.stdout


def test_without_its_rule_the_exhibit_shows_how_a_good_connection_is_reset(tmp_path: Path) -> None:
    patch = """if "proxylab.server.main" in __import__("sys").orig_argv:
    from proxylab.engines.embedded.iptables import fixed
    whole = fixed.forwarding
    fixed.forwarding = lambda settings: tuple(rule for rule in whole(settings) if "INVALID" not in str(rule))
"""
    (tmp_path / "sitecustomize.py").write_text(patch)
    done = run_out_of_window(str(tmp_path))
    assert done.returncode == 1
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert "the stray segment reached the client" in done.stdout
    stray = done.stdout.partition("4. server: ACK, 10000000 ahead")[2].partition("5. client")[0]
    assert "client/eth0    in   ACK, 21 bytes  10.244.1.10:8080" in stray, "it comes from the pod's own address"
    assert "echo/eth0      in   RST" in stray, "the client's reset reaches the pod"
