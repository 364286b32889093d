"""A mistake in a target has one key, one sentence and one cure: from ``check``, a plan, ``probe`` and ``apply``."""

from collections.abc import Callable
from typing import Final

import pytest
from broken_scenarios import BASE
from msgspec.structs import replace

from proxylab.client.edit import assemble_within
from proxylab.errors import ScenarioError
from proxylab.plan.assembly import assemble
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import HostTarget, PodTarget, ServiceTarget, Source, Target
from proxylab.scenario.words import Frontend

RIGHT: Final = parse_scenario(BASE, "f")
DIALLED: Final = ServiceTarget(service="echo", via=Frontend.CLUSTER_IP)


def with_probe(to: Target | None, sender: str) -> Scenario:
    (probe, *_) = RIGHT.probes
    return replace(RIGHT, probes=(replace(probe, source=Source(name=sender), target=to or probe.target),))


WAYS: Final[dict[str, Callable[[Scenario], object]]] = {
    "plan": assemble,
    "probe": lambda wrong: assemble(RIGHT).with_probes([replace(each, name="added") for each in wrong.probes]),
    "apply": lambda wrong: assemble_within(assemble(RIGHT).plan, wrong),
}


def told(act: Callable[[], object]) -> str:
    """What an error says behind the place, which each way says as it knows it."""
    with pytest.raises(ScenarioError) as caught:
        act()
    (line,) = str(caught.value).splitlines()
    for mark in ("spec.probes[0].", "probe 'added': ", f"probe {RIGHT.probes[0].name!r}: "):
        if mark in line:
            return line.partition(mark)[2]
    return line


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("written", "target", "sender"),
    [
        ("{service: ecko, via: clusterIP}", replace(DIALLED, service="ecko"), None),
        ("{service: echo, via: nodePort}", replace(DIALLED, via=Frontend.NODE_PORT), None),
        ("{service: echo, via: externalIP}", replace(DIALLED, via=Frontend.EXTERNAL_IP), None),
        ("{service: echo, via: clusterIP, port: htp}", replace(DIALLED, port="htp"), None),
        ("{service: echo, via: clusterIP, port: 81}", replace(DIALLED, port=81), None),
        ("{pod: ecko}", PodTarget(pod="ecko"), None),
        ("{host: outsite, port: 80}", HostTarget(host="outsite", port=80), None),
        ("{service: echo, via: clusterIP}", None, "klient"),
    ],
)
def test_a_mistake_is_told_alike(way: str, written: str, target: Target | None, sender: str | None) -> None:
    text = BASE.replace("to: {service: echo, via: clusterIP}", f"to: {written}")
    text = text.replace("from: client", f"from: {sender or 'client'}")
    assert text != BASE
    by_check = told(lambda: parse_scenario(text, "f"))
    wrong = with_probe(target, sender or RIGHT.probes[0].source.name)
    assert told(lambda: WAYS[way](wrong)) == by_check
