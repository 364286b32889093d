"""A scenario around Kubernetes manifests that belong to none: a cluster of three nodes in which they are applied."""

from typing import Final

from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

# It follows the manifests, so that each mistake has its place in the author's file.
_CLUSTER: Final = """
---
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: audit}
spec: {nodes: {node-a: {}, node-b: {}, node-c: {}}, probes: []}
"""


def scenario_of_manifests(text: str, file: str) -> Scenario:
    """The scenario of a cluster with these manifests. Raises ``ScenarioError``."""
    return parse_scenario(f"{text.rstrip()}{_CLUSTER}", file)
