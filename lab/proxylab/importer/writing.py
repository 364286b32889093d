"""Formats a scenario for a user to go on editing: its order, its comments, and a line of flow style for each entry."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from proxylab.importer.carry import Carried
from proxylab.importer.manifests import Data
from proxylab.importer.reading import COMMAND

__all__ = ["flow", "scenario_text"]

_PLAIN: Final = re.compile(r"[A-Za-z](?:[\w./ -]*[\w/-])?|\d+\.\d+\.\d+\.\d+(?:/\d+)?", re.ASCII)
_WORDS: Final = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
"""Words that some YAML reader does not read as text."""


def scenario_text(
    name: str, carried: Carried, clients: Mapping[str, Data], probes: Iterable[Data], left: Iterable[str]
) -> str:
    """The file, with everything left out as comments at its head."""
    metadata = {"name": name, "description": "The Services of a live cluster, as their objects promise them to pods."}
    lines = [f"# Written by `{COMMAND} | proxylab import`.", "# Not carried over:"]
    lines += [f"#   {each}" for each in left]
    lines += ["apiVersion: proxylab/v1", "kind: Scenario", "metadata:", *_entries(metadata, 2), "spec:", "  network:"]
    lines += _entries(carried.network, 4)
    pods = {**carried.pods, **clients}
    for key, entries in {"nodes": carried.nodes, "pods": pods, "hosts": carried.hosts}.items():
        lines += [f"  {key}:", *_entries(entries, 4)] if entries else []
    written = [_entries(probe, 4) for probe in probes]
    lines.append("  probes:" if written else "  probes: []")
    for first, *rest in written:
        lines += [f"  - {first.strip()}", *rest]
    for manifest in (*carried.services, *carried.slices):
        lines += ["---", *_manifest(manifest)]
    return "\n".join(lines) + "\n"


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
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return str(value)
    return json.dumps(value, ensure_ascii=False)
