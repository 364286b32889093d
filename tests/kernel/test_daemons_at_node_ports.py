"""A program of a node at a node port that no proxy serves there is no wrong endpoint, and it is one elsewhere."""

from pathlib import Path

import pytest
from command_line import CommandLine

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: own-program}
spec:
  nodes:
    node-a:
      addresses: [{device: eth0, address: 172.18.0.99/24}]
      daemons: {own: {port: 30080, address: 172.18.0.99}}
    node-b: {}
  pods: {echo: {nodes: [node-b], labels: {app: echo}, ports: [8080]}}
  hosts: {outside: {}}
  streams:
    second: {from: outside, to: {address: 172.18.0.99, port: 30080}, send: {protocol: TCP, every: 10ms}}
    first: {from: outside, to: {address: 172.18.0.2, port: 30080}, send: {protocol: TCP, every: 10ms}}
  steps:
  - name: streams to both addresses are answered
    expect: {second: {lost: 0}, first: {lost: 0}}
  probes:
  - name: the node's second address has a program of the node
    from: outside
    to: {address: 172.18.0.99, port: 30080}
    expect: {outcome: delivered, source: PRESERVED}
  - name: the node's first address serves the node port
    from: outside
    to: {address: 172.18.0.2, port: 30080}
    expect: {outcome: delivered, source: masqueraded, backends: [echo]}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {type: NodePort, selector: {app: echo}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
"""


@pytest.mark.parametrize(("mode", "source"), [("iptables", "masqueraded"), ("nftables", "preserved")])
def test_the_program_of_a_node_gets_what_no_proxy_serves(
    cli: CommandLine, tmp_path: Path, mode: str, source: str
) -> None:
    """Mode iptables serves every address, so there the Service's endpoint answers, and sees a masqueraded source."""
    file = tmp_path / "own-program.lab.yaml"
    file.write_text(SCENARIO.replace("PRESERVED", source))
    done = cli.type("run", str(file), "--engine", f"embedded/{mode}")
    assert done.status == 0, done.output
