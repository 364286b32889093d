"""Turns kubectl's output into the text of a scenario."""

from msgspec import Struct
from pydantic import ValidationError

from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.errors import ScenarioError
from proxylab.importer.carry import carry
from proxylab.importer.leftovers import Leftovers
from proxylab.importer.manifests import Data
from proxylab.importer.probes import Probes
from proxylab.importer.reading import COMMAND, KubectlOutput
from proxylab.importer.writing import scenario_text
from proxylab.scenario.schema.service import ServiceShape
from proxylab.scenario.schema.workload import EndpointSliceShape
from proxylab.scenario.services import service_of
from proxylab.scenario.workloads import slice_of

__all__ = ["Imported", "import_cluster"]


class Imported(Struct, frozen=True):
    """A scenario's text, a line for everything left out, and the number of probes."""

    text: str
    left: tuple[str, ...]
    probes: int


def import_cluster(kubectl_output: KubectlOutput, name: str) -> Imported:
    """Write the scenario of a cluster.

    Args:
        kubectl_output: the cluster's objects.
        name: the scenario's name.

    Raises:
        ScenarioError: a Service or EndpointSlice is not as an API server prints it.
    """
    left = Leftovers()
    try:
        carried = carry(kubectl_output, left)
        services = list(map(_service, carried.services))
        slices = [made for made in map(_slice, carried.slices) if made is not None]
    except (ValidationError, ValueError, LookupError, TypeError, AttributeError) as error:
        what = str(error).splitlines()[0]
        problem = f"an object is not as an API server prints it: {what}; import the output of `{COMMAND}`"
        raise ScenarioError([problem]) from error
    probes = Probes(carried, slices, left)
    written = [probe for service in services for probe in probes.of(service)]
    lines = tuple(left.lines())
    return Imported(scenario_text(name, carried, probes.clients, written, lines), lines, len(written))


def _service(data: Data) -> Service:
    return service_of(ServiceShape.model_validate(data))


def _slice(data: Data) -> EndpointSlice | None:
    return slice_of(EndpointSliceShape.model_validate(data))
