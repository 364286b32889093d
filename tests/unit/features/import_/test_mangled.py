"""What is mangled on its way here is refused, or imported; it never ends in a traceback, nor without an end."""

import copy
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from kubectl_clusters import cloud

from proxylab.errors import ScenarioError
from proxylab.features.import_.importing import import_cluster
from proxylab.features.import_.reading import read_kubectl_output
from proxylab.scenario.load import parse_scenario

ODD = [None, "", 0, -1, True, [], {}, "x", [None], {"a": 1}, "fd00::1", "10.0.0.1", 99_999, "None", ["x"], 3.5]
WHOLE = json.loads(cloud().json())


def netns_names(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path but those that the import ignores."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if key not in ("managedFields", "annotations"):
            yield (*path, key)
            yield from netns_names(inner, (*path, key))


PLACES = list(netns_names(WHOLE))


def mangled(choice: random.Random) -> Any:
    """The whole with up to three values gone, or others than they were."""
    whole = copy.deepcopy(WHOLE)
    for _ in range(choice.randint(1, 3)):
        *path, last = choice.choice(PLACES)
        holder = whole
        try:
            for key in path:
                holder = holder[key]
            if choice.random() < 0.3:
                del holder[last]
            else:
                holder[last] = choice.choice(ODD)
        except (LookupError, TypeError):
            pass  # what stood there is gone already
    return whole


@pytest.mark.parametrize("seed", range(8))
def test_it_is_refused_or_carried_over(seed: int) -> None:
    choice = random.Random(seed)
    for _ in range(8):
        text = json.dumps(mangled(choice))
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
