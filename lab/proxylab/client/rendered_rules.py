"""The rules that an embedded engine renders for a scenario, without a lab: node by node, and step by step.

``proxylab rules FILE`` prints those of a node. ``proxylab mutate`` classes those of all nodes, after each step too.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.binary_identity import BinaryIdentity
from proxylab.client.node_engines import engines_by_step
from proxylab.cluster.objects import EndpointSlice, KubeObject, Node, Service, ServiceCIDR
from proxylab.engines.embedded.gates import allows_external_ips, refuse_settings
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.engine_names import EngineName, mode_of
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.plan.model import Plan
from proxylab.scenario.model import Scenario


class RenderedRules(Struct, frozen=True):
    """What the engine would load into an empty node for one family; ``assumed`` says what of the node's kernel."""

    family: Family
    node: str
    assumed: str
    text: str


def rendered_rules(
    scenario: Scenario, plan: Plan, objects: Sequence[KubeObject], engine: str
) -> Iterator[RenderedRules]:
    """The rules of each node and family for these objects of the cluster, by the engine that the node begins with.

    Raises:
        ScenarioError: the scenario's configuration has a feature gate that the engine lacks.
        CapabilityError: no embedded engine behaves like one that the scenario names.
        EngineError: an engine has no mode in which the scenario runs it.
    """
    engines = engines_by_step(EngineChoice(engine), scenario, _of_version)[0]
    for each in engines.values():
        refuse_settings(each.name, each.configuration)
    view = ClusterView(
        services=tuple(each for each in objects if isinstance(each, Service)),
        slices=tuple(each for each in objects if isinstance(each, EndpointSlice)),
        service_cidrs=tuple(cidr for each in objects if isinstance(each, ServiceCIDR) for cidr in each.cidrs),
    )
    for node in (each for each in objects if isinstance(each, Node)):
        sysctls = {each.name: each.value for each in plan.namespace(node.name).sysctls}
        begun = engines[node.name]
        mode, version = MODES[mode_of(begun.name)], begun.version
        settings = mode.settings(begun.configuration, scenario.network.pod_cidrs)
        settings, assumed = mode.assume(settings, sysctls, version)
        seen = replace(view, allows_external_ips=allows_external_ips(begun.configuration))
        facts = NodeFacts.of(node.name, node, node.addresses, settings.node_address)
        for family in scenario.network.families:
            text = mode.load(seen, facts, settings, family, version)
            yield RenderedRules(family, node.name, assumed, text)


def _of_version(name: EngineName) -> Upstream:
    """A kube-proxy that a scenario names: what it would load shows in its version, not in its binary."""
    return Upstream("", BinaryIdentity(version=name.version, origin="", digest=""))
