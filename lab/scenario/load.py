"""From a file to a ``Scenario``, or to every mistake in it at once.

Owns: the order in which a file is read and checked.
Must not: find mistakes itself; each kind has its module.

Theory of operation. A mistake must not hide another one, nor make up one that is not there. So a file is read in
layers, each of which goes on with what the one before could make sense of: YAML (``source``), each document by its
shape (``validation``), each well-formed part (``parts``, ``manifests``), and then the parts against each other
(``inventory``, ``references``, ``probes``). What could not be read is known to be there, and references to it are left
alone. Only when no layer found anything is the ``Scenario`` built.
"""

from pathlib import Path

from lab.errors import InternalError
from lab.scenario.build import build_scenario
from lab.scenario.configuration import CONFIGURATION_KIND, read_configuration
from lab.scenario.document import Document, Spot
from lab.scenario.inventory import check_network, take_inventory
from lab.scenario.manifests import read_manifests
from lab.scenario.model import Position, Scenario
from lab.scenario.parts import read_parts
from lab.scenario.probes import check_probes
from lab.scenario.problems import Problems
from lab.scenario.references import check_services
from lab.scenario.source import MOST_BYTES, decode, read_documents

__all__ = ["load_scenario", "parse_scenario"]


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ScenarioError: with a line for each mistake, or saying why the file cannot be read.
    """
    problems = Problems()
    file = str(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problems.add(_start(file), f"the file cannot be read: {reason}")
        problems.raise_any()
        raise
    text = decode(data, file, problems)
    problems.raise_any()
    return _scenario(text or "", file, problems)


def parse_scenario(text: str, file: str) -> Scenario:
    """Read a scenario from text.

    Args:
        text: the YAML of one scenario file.
        file: the name by which positions call it.

    Raises:
        ScenarioError: with a line for each mistake.
    """
    return _scenario(text, file, Problems())


def _scenario(text: str, file: str, problems: Problems) -> Scenario:
    documents, complete = read_documents(text, file, problems)
    scenarios = [document.root for document in documents if _is_scenario(document)]
    configurations = [document.root for document in documents if _is_configuration(document)]
    apart = {id(place.document) for place in (*scenarios, *configurations)}
    others = [document.root for document in documents if id(document) not in apart]
    for surplus in scenarios[1:]:
        problems.add(surplus.spot, "a second Scenario stands in the file", allowed="one file holds one scenario")
    if not scenarios and complete:
        needed = "needed: a document with apiVersion: proxylab/v1 and kind: Scenario"
        problems.add(_start(file), "the file holds no Scenario", allowed=needed)
    parts = read_parts(scenarios[0], problems) if scenarios else None
    network = parts.network if parts else None
    configured = read_configuration(configurations, problems)
    manifests = read_manifests(others, network.service_cidr if network else None, problems)
    check_services(manifests, problems)
    if parts is not None and complete:
        inventory = take_inventory(parts, problems)
        check_network(parts, problems)
        check_probes(parts, inventory, manifests, problems)
    problems.raise_any()
    if parts is None or parts.document is None:
        raise InternalError(f"{file}: refused, but no problem was told; please report this file")
    return build_scenario(file, parts.document, parts.place, manifests, configured)


def _is_scenario(document: Document) -> bool:
    """Whether a document is meant to be a Scenario; one of the two words is enough."""
    value = document.value
    if not isinstance(value, dict):
        return False
    return value.get("kind") == "Scenario" or str(value.get("apiVersion")).startswith("proxylab/")


def _is_configuration(document: Document) -> bool:
    return isinstance(document.value, dict) and document.value.get("kind") == CONFIGURATION_KIND


def _start(file: str) -> Spot:
    return Spot(Position(file, 1, 1), ())
