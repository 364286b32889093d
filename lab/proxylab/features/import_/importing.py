"""Turns kubectl's output into the text of a scenario."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from proxylab.addresses import IPNetwork
from proxylab.cluster.documents import object_of
from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.errors import ScenarioError
from proxylab.features.import_.conversion import Converted, convert
from proxylab.features.import_.manifests import Data
from proxylab.features.import_.omissions import Omissions
from proxylab.features.import_.probes import Probes
from proxylab.features.import_.proxy_settings import CONFIG_MAP
from proxylab.features.import_.reading import COMMAND, KubectlOutput
from proxylab.text import printable


class Imported(Struct, frozen=True):
    """A scenario's text, a line for everything left out, the number of probes, and the engine that the cluster runs."""

    text: str
    left: tuple[str, ...]
    probes: int
    engine: str = ""


def import_cluster(kubectl_output: KubectlOutput, name: str, service_networks: Sequence[IPNetwork] = ()) -> Imported:
    """Write the scenario of a cluster.

    ``service_networks`` are its ServiceCIDRs, where the user knows them. Raises ``ScenarioError``.
    """
    omissions = Omissions()
    try:
        converted = convert(kubectl_output, omissions, service_networks)
        services = [object_of(Service, each) for each in converted.services]
        slices = [object_of(EndpointSlice, each) for each in (*converted.slices, *converted.derived)]
    except (ScenarioError, ValueError, LookupError, TypeError, AttributeError) as error:
        what = str(error).splitlines()[0]
        problem = f"an object is not as an API server prints it: {what}; import the output of `{COMMAND}`"
        raise ScenarioError([problem]) from error
    for network in service_networks:
        of_family = [each for one in services for each in one.cluster_ips if each.version == network.version]
        if outside := [each for each in of_family if each not in network]:
            what = f"--service-cidr {network} does not hold the cluster IP {outside[0]}"
            raise ScenarioError([f"{what}; give the network of all cluster IPs, or leave the option out"])
        if str(network) not in converted.network["serviceCIDR"]:
            omissions.add("networks of --service-cidr in whose family the cluster has no address", str(network))
    probes = Probes(converted, slices, omissions)
    written = [probe for service in services for probe in probes.of(service)]
    if not converted.proxy.configuration:
        omissions.add("the proxy's configuration", f"give `import` the output of `{CONFIG_MAP}`, too")
    lines = tuple(omissions.lines())
    text = scenario_text(name, converted, probes, written, lines)
    return Imported(text, lines, len(written), converted.proxy.engine)


_PLAIN: Final = re.compile(r"[A-Za-z](?:[\w./ -]*[\w/-])?|\d+\.\d+\.\d+\.\d+(?:/\d+)?", re.ASCII)
_WORDS: Final = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
"""Words that some YAML reader does not read as text."""


def scenario_text(name: str, converted: Converted, senders: Probes, probes: Iterable[Data], left: Iterable[str]) -> str:
    """The file, with everything left out as comments at its head."""
    metadata = {
        "name": name,
        "description": "The Services of a live cluster, judged by what Kubernetes promises.",
    }
    lines = [f"# Written by `{COMMAND} | proxylab import`."]
    lines += [f"# The cluster's proxy: --engine {converted.proxy.engine}"] if converted.proxy.engine else []
    lines += ["# Not imported:"]
    lines += [f"#   {each}" for each in left]
    lines += ["apiVersion: proxylab/v1", "kind: Scenario", "metadata:", *_entries(metadata, 2), "spec:", "  network:"]
    lines += _entries(converted.network, 4)
    lines += ["  dns: true"] if converted.serves_names else []
    pods, hosts = {**converted.pods, **senders.clients}, {**converted.hosts, **senders.hosts}
    for key, entries in {"nodes": converted.nodes, "pods": pods, "hosts": hosts}.items():
        lines += [f"  {key}:", *_entries(entries, 4)] if entries else []
    written = [_entries(probe, 4) for probe in probes]
    lines.append("  probes:" if written else "  probes: []")
    for first, *rest in written:
        lines += [f"  - {first.strip()}", *rest]
    configuration = [converted.proxy.configuration] if converted.proxy.configuration else []
    for manifest in (*converted.services, *converted.slices, *configuration):
        lines += ["---", *_manifest(manifest)]
    return printable("\n".join(lines)) + "\n"


def _manifest(manifest: Data) -> Iterator[str]:
    """An object, with a line for each endpoint."""
    for key, value in manifest.items():
        if key == "endpoints" and value:
            yield "endpoints:"
            yield from (f"- {flow(each)}" for each in value)
        else:
            yield f"{flow(key)}: {flow(value)}"


def _entries(entries: Mapping[str, object], indent: int) -> list[str]:
    return [f"{' ' * indent}{flow(key)}: {flow(value)}" for key, value in entries.items()]


def flow(value: object) -> str:
    """A value in YAML's flow style; text is quoted where a reader could take it for another type.

    Example:
        >>> flow({"name": "a b", "ports": [80], "zone": "1e3", "mode": "on"})
        '{name: a b, ports: [80], zone: "1e3", mode: "on"}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return str(value)
    return json.dumps(value, ensure_ascii=False)
