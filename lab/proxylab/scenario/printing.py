"""``scenario_text``: a ``Scenario`` as the text of a file.

The text reads as the same scenario, except for positions; it loses comments and the order of keys. It is for programs
that make scenarios, and for tests. JSON is valid YAML 1.2, so each key of ``spec`` is one line of JSON.
"""

import json

from proxylab.scenario.model import Node, PodGroup, Scenario
from proxylab.scenario.printed_intent import axis_value, printed_flow, printed_probe, printed_when
from proxylab.scenario.printed_keys import printed
from proxylab.scenario.printed_objects import Data, given, printed_proxy, printed_service, printed_slice, texts
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
        nodes={node.name: _node(node) for node in scenario.nodes},
        pods={pod.name: _pod(pod) for pod in scenario.pods},
        hosts={
            host.name: given(segment=host.segment, addresses=host.addresses, sysctls=dict(host.sysctls))
            for host in scenario.hosts
        },
        loadBalancers={
            each.name: given(pool=texts(each.pool), nodes=list(each.nodes), healthChecked=each.health_checked)
            for each in scenario.load_balancers
        },
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


def _node(node: Node) -> Data:
    return given(
        labels=dict(node.labels),
        taints=list(node.taints),
        terminating=node.terminating,
        sysctls=dict(node.sysctls),
        internalIPs=texts(node.internal_ips),
        addresses=[{"device": each.device, "address": str(each.interface)} for each in node.addresses],
        uplinks={each.device: {"segment": each.segment} for each in node.uplinks},
        routes=[
            given(
                to=str(each.destination),
                device=each.device,
                via=str(each.via) if each.via else None,
                from_=str(each.source) if each.source else None,
            )
            for each in node.routes
        ],
        daemons={
            each.name: given(
                port=each.port, protocol=str(each.protocol), address=str(each.address) if each.address else None
            )
            for each in node.daemons
        },
        leftovers=dict(node.leftovers),
    )


def _pod(pod: PodGroup) -> Data:
    return {
        **given(
            namespace=pod.namespace,
            replicas=pod.replicas,
            nodes=list(pod.nodes),
            labels=dict(pod.labels),
            ports=[given(name=port.name, port=port.port, protocol=str(port.protocol)) for port in pod.ports],
            terminating=pod.terminating,
            hostNetwork=pod.host_network,
            sharedNetns=pod.shared_netns,
            sysctls=dict(pod.sysctls),
            hostname=pod.hostname,
            subdomain=pod.subdomain,
            addresses=texts(pod.addresses),
        ),
        "ready": pod.ready,
        "serving": pod.serving,
        "present": pod.present,
    }
