"""Scenario files for tests of their readers, not of their content."""

__all__ = ["scenario_text"]

_HEAD = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: {name}{metadata}}}
spec:
  nodes: {{node-a: {{}}}}
  pods:
    echo: {{nodes: [node-a], labels: {{app: echo}}, ports: [8080]}}
    client: {{nodes: [node-a]}}
  probes:
"""

_PROBE = """\
  - name: {name}
    from: client
    to: {{service: echo, via: clusterIP}}
    expect: {{outcome: delivered, source: preserved}}
"""

_SERVICE = """\
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""


def scenario_text(*probes: str, name: str = "fine", metadata: str = "") -> str:
    """A scenario of that name with probes of those names; the first stands in line 10, each takes four lines."""
    return (
        _HEAD.format(name=name, metadata=metadata) + "".join(_PROBE.format(name=probe) for probe in probes) + _SERVICE
    )
