"""A scenario that dials some of what its proxies have programmed, and what ``--rule-coverage`` must say of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

__all__ = ["COVERED", "checked_coverage"]

COVERED: Final = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: covered}
spec:
  network: {families: [IPv4, IPv6]}
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {nodes: [node-b], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
  probes:
  - name: dialled
    from: client
    to: {service: echo, port: 80, via: clusterIP}
    expect: {outcome: delivered, source: preserved}
  - name: itself
    from: echo
    to: {service: echo, port: 80, via: clusterIP}
    expect: {outcome: delivered, source: {node: node-b, device: pods}}
  steps:
  - name: another Service comes
    change: {services: {later: {spec: {selector: {app: echo}, ports: [{port: 90, targetPort: 8080}]}}}}
    probes:
    - name: later
      from: client
      to: {service: later, via: clusterIP}
      expect: {outcome: delivered, source: preserved}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  ipFamilyPolicy: PreferDualStack
  type: NodePort
  selector: {app: echo}
  ports: [{name: dialled, port: 80, targetPort: 8080}, {name: never, port: 81, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {selector: {app: none}, ports: [{port: 80}]}
"""


def checked_coverage(engine: str, run: Callable[[str], str], folder: Path) -> dict[str, Any]:
    """The kinds by their names, after a run of the scenario whose JSON report ``run`` returns for its file."""
    file = folder / "covered.lab.yaml"
    file.write_text(COVERED)
    (result,) = json.loads(run(str(file)))["scenarios"]
    assert [each["judgement"] for each in result["probes"]] == ["pass"] * 3, engine
    assert result["rules"]["uncounted"] == []
    return {each["kind"]: each for each in result["rules"]["kinds"]}
