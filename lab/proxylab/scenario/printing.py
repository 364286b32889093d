"""``scenario_text``: a ``Scenario`` as the text of a file.

The text reads as the same scenario, except for positions; it loses comments and the order of keys. It is for programs
that make scenarios, and for tests. JSON is valid YAML 1.2, so each key of ``spec`` is one line of JSON.
"""

import json

from proxylab.scenario.model import Scenario
from proxylab.scenario.printed_intent import axis_value, printed_flow, printed_probe, printed_when
from proxylab.scenario.printed_keys import printed
from proxylab.scenario.printed_objects import Data, given, printed_proxy, printed_service, printed_slice
from proxylab.scenario.printed_steps import printed_steps

__all__ = ["scenario_text"]


def scenario_text(scenario: Scenario) -> str:
    """The text, including the contents of manifest files."""
    head = {"apiVersion": "proxylab/v1", "kind": "Scenario", "metadata": _metadata(scenario)}
    lines = [f"{key}: {json.dumps(value)}" for key, value in head.items()]
    lines.append("spec:")
    lines += [f"  {key}: {json.dumps(value)}" for key, value in _spec(scenario).items()]
    proxy = [printed_proxy(scenario.proxy)] if scenario.proxy is not None else []
    for manifest in (*map(printed_service, scenario.services), *map(printed_slice, scenario.slices), *proxy):
        lines += ["---", *(f"{key}: {json.dumps(value)}" for key, value in manifest.items())]
    return "\n".join(lines) + "\n"


def _metadata(scenario: Scenario) -> Data:
    return given(
        name=scenario.name, description=scenario.description, links=list(scenario.links), tags=list(scenario.tags)
    )


def _spec(scenario: Scenario) -> Data:
    return given(
        network=printed(scenario.network),
        nodes=printed(scenario.nodes),
        pods=printed(scenario.pods),
        hosts=printed(scenario.hosts),
        loadBalancers=printed(scenario.load_balancers),
        matrix={axis.name: [axis_value(axis.name, value) for value in axis.values] for axis in scenario.matrix},
        except_=[
            {"when": printed_when(each.when, each.version), "engineFails": each.says, "because": each.because}
            for each in scenario.failures
        ],
        probes=list(map(printed_probe, scenario.probes)),
        streams={each.name: printed_flow(each) for each in scenario.streams},
        dns=scenario.dns,
        steps=printed_steps(scenario),
    )
