"""``check`` of one scenario with thousands of probes: the time grows with their number, not with its square.

Each kind looks up something by a probe: its place in the scenario, the step that it belongs to, what the promises say.
Four times as many take less than four times as long, because Python starts once; a look at each other one would take up
to sixteen times as long.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from test_check import cpu_seconds

MOST_TIMES = 5
HEAD = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: many}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {replicas: 3, nodes: [node-a, node-b], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
"""
SERVICE = """\
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""
EXPECTED = "expect: {outcome: delivered, source: preserved}"
CHANGE = "change: {pods: {echo-1: {ready: false}}}"


def probe(number: int, expect: str = "") -> str:
    return f"{{name: p{number}, from: client, to: {{service: echo, via: clusterIP}}, {expect}}}"


def of_its_author(number: int) -> str:
    return "  probes:\n" + "".join(f"  - {probe(each, EXPECTED)}\n" for each in range(number))


def left_to_the_promises(number: int) -> str:
    return "  probes:\n" + "".join(f"  - {probe(each)}\n" for each in range(number))


def in_one_step(number: int) -> str:
    return f"  steps:\n  - name: s\n    {CHANGE}\n    probes:\n" + "".join(
        f"    - {probe(each, EXPECTED)}\n" for each in range(number)
    )


def in_steps_of_their_own(number: int) -> str:
    return "  steps:\n" + "".join(
        f"  - {{name: s{each}, {CHANGE}, probes: [{probe(each, EXPECTED)}]}}\n" for each in range(number)
    )


@pytest.mark.benchmark
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("written", "few"),
    [(of_its_author, 4_000), (left_to_the_promises, 2_000), (in_one_step, 2_000), (in_steps_of_their_own, 1_000)],
)
def test_four_times_as_many_probes_take_four_times_as_long(
    written: Callable[[int], str], few: int, tmp_path: Path
) -> None:
    seconds = []
    for number in (few, few, 4 * few):  # the first one fills the cache of compiled modules
        file = tmp_path / f"{number}.lab.yaml"
        file.write_text(HEAD + written(number) + SERVICE)
        seconds.append(cpu_seconds(["-m", "proxylab", "check", str(file)], tmp_path))
    assert seconds[2] < MOST_TIMES * seconds[1], seconds
