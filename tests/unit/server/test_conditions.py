"""How long a step waits for engines, by one that only notes its deadline."""

import asyncio
from typing import Any

import pytest

from proxylab.engines.fleet import Fleet
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.load import parse_scenario
from proxylab.server.conditions import StepConditions
from proxylab.timing import Deadline

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: s, description: One step over IPv4 alone.}
spec:
  nodes: {node-a: {}}
  pods: {echo: {nodes: [node-a], ports: [8080]}}
  probes: [{name: p, from: node-a, to: {pod: echo, port: 8080}, expect: {outcome: delivered, source: preserved}}]
  steps:
  - name: the pod is unready
    change: {pods: {echo: {ready: false}}}
    until: {engines: {node-a: synced}WITHIN}
"""


class Waited:
    """An engine that is synced at once."""

    deadline: Deadline

    async def start(self) -> None: ...

    async def wait_synced(self, revision: int, deadline: Deadline) -> None:
        self.deadline = deadline

    async def dump(self) -> str:
        return ""

    def logs(self) -> tuple[str, ...]:
        return ()

    async def stop(self) -> None: ...


async def no_flush(node: str, mode: str) -> None: ...


@pytest.mark.parametrize(
    ("mode", "within", "seconds"), [("iptables", "", 60), ("ipvs", "", 240), ("ipvs", ", within: 5s", 5)]
)
def test_engines_have_as_long_as_without_conditions_unless_the_step_says_otherwise(
    mode: str, within: str, seconds: int
) -> None:
    (step,) = parse_scenario(SCENARIO.replace("WITHIN", within), "f").steps
    engine = Waited()
    unused: Any = None

    async def main() -> None:
        fleet = Fleet({"node-a": EngineChoice(f"embedded/{mode}")}, lambda node, choice: engine, no_flush)
        conditions = StepConditions(fleet, unused, (), unused, unused)
        assert step.until is not None
        await conditions.wait(step.name, 1, step.until, {})

    began = Deadline.after(0).at
    asyncio.run(main())
    assert seconds <= engine.deadline.at - began < seconds + 3
