"""The reference page of the scenarios that come with the project, made from their files."""

import re
from collections.abc import Iterator
from pathlib import Path

from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario

__all__ = ["CHAPTERS", "SCENARIOS", "SUFFIX", "anchor", "places", "scenarios_page", "text"]

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
SUFFIX = ".lab.yaml"

CHAPTERS = {
    "clusterip": "Cluster IPs",
    "senders": "Clients on a node",
    "nodeport": "Node ports",
    "hostport": "Host ports of pods",
    "externalip": "External IPs",
    "loadbalancer": "Load balancers",
    "rejections": "Services without endpoints",
    "untranslated": "Packets that are for no Service",
    "spread": "Shares of the endpoints",
    "affinity": "Session affinity",
    "topology": "Zones and nodes",
    "terminating": "Terminating endpoints",
    "workloads": "Workloads",
    "health": "Health of the proxy",
    "masquerade": "Masquerading",
    "detect-local": "How a proxy tells pods from external clients",
    "hairpin": "Pods that reach themselves",
    "conntrack": "Connection tracking",
    "families": "IPv4, IPv6 and dual-stack",
    "sctp": "SCTP",
    "links": "Links that lose or delay packets",
    "icmp": "ICMP",
    "fragments": "Fragments",
    "network": "Networks of pods and nodes",
    "dns": "DNS",
    "ingress": "Ingress and HTTPRoute before Services",
    "manifests": "Kubernetes objects as kubectl prints them",
    "ipvs": "What mode ipvs does with addresses and ports of the node",
    "userspace": "Mode userspace beside the others",
    "leftovers": "Rules of an earlier proxy or of other programs",
    "steps": "Changes while the cluster is in use",
    "bugs": "Bugs and limits of kube-proxy",
}
"""The folders of ``scenarios/`` as chapters, in the order of the page."""

_PAGE = """\
# Scenarios

The scenarios that come with proxylab, by theme. Each one proves a behaviour of Kubernetes Services on a real kernel.
Together they document what a Service does: where it sends a packet, which source address the endpoint sees, and when it
rejects or drops.

```console
$ proxylab run scenarios/externalip
$ proxylab run scenarios/nodeport --probe 'NodePort with externalTrafficPolicy Local preserves the client IP'
```

A list names the probes of a scenario. A numbered list names its steps, with the probes that are sent after each step.

{contents}

{chapters}
"""

_FIRST_SENTENCE = re.compile(r"(.+?\.)(?: (.+))?", re.DOTALL)
_LABELS = (
    (re.compile(r"https://github\.com/kubernetes/enhancements/tree/master/keps/[\w-]+/(\d+)-[^/]*"), r"KEP-\1"),
    (re.compile(r"https://github\.com/kubernetes/([\w.-]+)/(?:issues|pull)/(\d+)"), r"\1#\2"),
    (re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)"), r"\1#\2"),
    (re.compile(r"https://www\.rfc-editor\.org/rfc/rfc(\d+)(?:#.*)?"), r"RFC \1"),
    (re.compile(r"https://kubernetes\.io/docs/.*?([\w.-]+)/#([\w-]+)"), r"\1, \2"),
    (re.compile(r"https://(?:[^/]+/)*([\w.-]+)/?(?:#.*)?"), r"\1"),
)


def places() -> list[str]:
    """Every scenario by its path below ``scenarios/``, without suffix."""
    return sorted(path.relative_to(SCENARIOS).as_posix().removesuffix(SUFFIX) for path in SCENARIOS.rglob("*.lab.yaml"))


def scenarios_page() -> str:
    """A chapter for each folder, a section for each scenario."""
    folders: dict[str, list[str]] = {folder: [] for folder in CHAPTERS}
    for place in places():
        folders[place.partition("/")[0]].append(place)
    contents = "\n".join(f"* [{CHAPTERS[folder]}](#{anchor(CHAPTERS[folder])})" for folder in folders)
    chapters = "\n\n".join(
        "\n\n".join([f"## {CHAPTERS[folder]}", *(_section(place) for place in inside)])
        for folder, inside in folders.items()
    )
    return _PAGE.format(contents=contents, chapters=chapters)


def _section(place: str) -> str:
    scenario = load_scenario(SCENARIOS / f"{place}{SUFFIX}")
    found = _FIRST_SENTENCE.fullmatch(scenario.description)
    assert found is not None, f"{place}: the description has no first sentence"
    links = ", ".join(f"[{_label(link)}]({link})" for link in scenario.links)
    return "\n\n".join(
        [
            f"### [{place}](../../scenarios/{place}{SUFFIX})",
            f"**{text(found[1])}**" + (f" {text(found[2])}" if found[2] else ""),
            "\n".join(_shown(scenario)),
            f"See {links}.",
        ]
    )


def _shown(scenario: Scenario) -> Iterator[str]:
    yield from (f"* {text(probe.name)}" for probe in scenario.probes)
    if scenario.probes and scenario.steps:
        yield ""
    for number, step in enumerate(scenario.steps, 1):
        yield f"{number}. {text(step.name)}"
        indent = " " * len(f"{number}. ")
        yield from (f"{indent}* {text(probe.name)}" for probe in step.probes)


def _label(link: str) -> str:
    pattern, label = next((pattern, label) for pattern, label in _LABELS if pattern.fullmatch(link))
    return pattern.sub(label, link)


def text(words: str) -> str:
    return words.replace("*", r"\*").replace("_", r"\_").replace("<", "&lt;")


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
