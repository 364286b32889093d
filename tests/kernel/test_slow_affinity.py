"""A lab that is slower than timeoutSeconds cannot show that a proxy forgets its clients too early, and says so."""

from pathlib import Path

import pytest
from command_line import CommandLine

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: too-slow}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    client: {nodes: [node-a]}
    early: {nodes: [node-b], labels: {app: echo}, ports: [8080]}
    late: {replicas: 3, nodes: [node-b], labels: {app: echo}, ports: [8080], ready: false}
  hosts: {crowd: {addresses: 40}}
  probes:
  - name: the clients reach the only pod
    from: {name: crowd, address: all}
    to: {service: echo, via: clusterIP, node: node-a}
    send: {as: packet, flows: 40}
    expect: {outcome: delivered, backends: [early], source: {node: node-a, device: uplink}}
  steps:
  - name: more time passes than timeoutSeconds
    change: {pods: {late: {ready: true}}}
    until: {engines: {node-a: synced}, elapsed: 1300ms}
    probes:
    - name: the clients still reach that pod
      from: {name: crowd, address: all}
      to: {service: echo, via: clusterIP, node: node-a}
      send: {as: packet, flows: 40}
      expect: {outcome: delivered, backends: [early], source: {node: node-a, device: uplink}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 1}}
  selector: {app: echo}
  ports: [{port: 80, targetPort: 8080}]
"""


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_clients_that_come_back_too_late_make_a_probe_inconclusive(cli: CommandLine, tmp_path: Path, mode: str) -> None:
    (tmp_path / "slow.lab.yaml").write_text(SCENARIO)
    done = cli.type("run", str(tmp_path / "slow.lab.yaml"), "--engine", f"embedded/{mode}")
    words = " ".join(done.output.split())
    assert done.status == 6, done.output
    assert "INCONCLUSIVE: more time passes than timeoutSeconds: the clients still reach that pod" in words
    assert "not an expected backend, but its client was away for up to 1." in words
    assert "and timeoutSeconds is 1" in words
