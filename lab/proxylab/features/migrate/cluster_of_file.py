"""The cluster that a certificate is about where no scenario file describes it: manifests, or a live one's dump."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from proxylab.features.audit.manifests import scenario_of_manifests
from proxylab.features.import_.importing import import_cluster
from proxylab.features.import_.reading import read_kubectl_output
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

_LIST: Final = re.compile(r"^kind: \w*List$|\"kind\": ?\"\w*List\"", re.MULTILINE)
"""What kubectl prints of several objects; text in the JSON of an annotation has a backslash before each quote."""


class ClusterOfFile(Struct, frozen=True):
    """The scenario of a cluster, and what it lacks of the one that was dumped."""

    scenario: Scenario
    left_out: tuple[str, ...] = ()


def is_dump(text: str) -> bool:
    """Whether a text is what kubectl printed of several objects, and not manifests as an author writes them."""
    return _LIST.search(text) is not None


def cluster_of_dump(texts: Iterable[tuple[str, str]], name: str) -> ClusterOfFile:
    """The cluster of a dump called ``name``, from its texts with their names. Raises ``ScenarioError``."""
    imported = import_cluster(read_kubectl_output(texts), "imported")
    return ClusterOfFile(parse_scenario(imported.text, name), imported.left)


def cluster_of_manifests(text: str, name: str) -> ClusterOfFile:
    """The cluster to which an author's manifests are applied. Raises ``ScenarioError``."""
    return ClusterOfFile(scenario_of_manifests(text, name))
