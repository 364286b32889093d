"""What is mangled on its way here is refused, or imported; it never ends in a traceback, nor without an end."""

import copy
import json
import random
from contextlib import suppress

import pytest
from kubectl_clusters import cloud
from mangled import mangled, places

from proxylab.errors import ScenarioError
from proxylab.features.import_.importing import import_cluster
from proxylab.features.import_.reading import read_kubectl_output
from proxylab.scenario.load import parse_scenario

WHOLE = json.loads(cloud().json())
PLACES = [*places(WHOLE, left_out=("managedFields", "annotations"))]  # those that the import reads


@pytest.mark.parametrize("seed", range(8))
def test_it_is_refused_or_carried_over(seed: int) -> None:
    choice = random.Random(seed)
    for _ in range(8):
        text = json.dumps(mangled(WHOLE, PLACES, choice))
        with suppress(ScenarioError):
            done = import_cluster(read_kubectl_output([("x", text)]), "mine")
            if choice.random() < 0.2:  # its reader has tests of its own
                parse_scenario(done.text, "mine.lab.yaml")


def test_a_pod_without_a_name_and_an_address_that_is_the_first_of_all() -> None:
    whole = copy.deepcopy(WHOLE)
    for each in whole["items"]:
        if each["kind"] == "Pod":
            each["metadata"]["name"] = ""
        if each["kind"] == "Node":
            each["status"]["addresses"] = [{"type": "InternalIP", "address": "0.0.0.1"}]
    assert import_cluster(read_kubectl_output([("x", json.dumps(whole))]), "mine").probes
