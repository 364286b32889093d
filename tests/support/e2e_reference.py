"""The reference page of upstream's end-to-end tests: what shows the same here, or why nothing does.

``e2e_tests.yaml`` holds them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import yaml
from msgspec import Struct, convert
from scenario_index import SCENARIOS, SUFFIX, anchor, text

__all__ = ["UpstreamTest", "e2e_reference", "upstream_tests"]

_UPSTREAM = "https://github.com/kubernetes/kubernetes/blob/v1.37.2/test/e2e/network"

_PAGE = """\
# Upstream's end-to-end tests of the network

The {total} end-to-end tests of Services, DNS and the network in Kubernetes 1.37 (`test/e2e/network`), and what shows
the same here: without a cluster, rule by rule. The lab shows all that {whole} of them assert, a part of {partly}, and
nothing of {absent}; the table says which part, and why. It leaves out network policies, the API of Ingress, the API
server's own proxy, and measurements of throughput.

```console
$ proxylab run scenarios/clusterip/from-a-pod.lab.yaml
```

{files}
"""


class UpstreamTest(Struct, frozen=True, forbid_unknown_fields=True):
    """One end-to-end test. ``shown`` names scenarios, probes, steps and tests as ``e2e_tests.yaml`` says."""

    shown: tuple[str, ...] = ()
    partly: str = ""
    absent: str = ""


def upstream_tests() -> Mapping[str, Mapping[str, UpstreamTest]]:
    """The tests by upstream's file and their names."""
    written = Path(__file__).with_name("e2e_tests.yaml").read_text(encoding="utf-8")
    return convert(yaml.safe_load(written), dict[str, dict[str, UpstreamTest]])


def e2e_reference() -> str:
    """A table for each of upstream's files."""
    files = upstream_tests()
    every = [each for tests in files.values() for each in tests.values()]
    return _PAGE.format(
        total=len(every),
        whole=sum(not each.partly and not each.absent for each in every),
        partly=sum(bool(each.partly) for each in every),
        absent=sum(bool(each.absent) for each in every),
        files="\n\n".join("\n".join(_table(file, tests)) for file, tests in files.items()),
    )


def _table(file: str, tests: Mapping[str, UpstreamTest]) -> Iterator[str]:
    yield f"## {file}"
    yield ""
    yield f"Upstream's file: [{file}]({_UPSTREAM}/{file})."
    yield ""
    yield "| upstream's test | here |"
    yield "|---|---|"
    for name, test in tests.items():
        places = groupby(test.shown, key=lambda shown: shown.partition("::")[0])
        here = [_shown(place, [each.partition("::")[2] for each in group]) for place, group in places]
        if test.partly:
            here.append(f"In part: {text(test.partly)}.")
        if test.absent:
            here.append(f"Not shown: {text(test.absent)}.")
        yield f"| {text(name)} | {'<br>'.join(here)} |"


def _shown(place: str, titles: Sequence[str]) -> str:
    if (SCENARIOS / f"{place}{SUFFIX}").exists():
        where = f"[{place}](scenarios.md#{anchor(place)})"
    else:
        where = f"[{text(place)}](../../scenarios/{place})"
    return where + (": " if any(titles) else "") + "; ".join(map(text, titles))
