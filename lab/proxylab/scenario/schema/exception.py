"""The shapes of ``except``: of a scenario, and of a probe."""

from pydantic import Field

from proxylab.scenario.expect import Expect
from proxylab.scenario.schema.base import ScenarioShape
from proxylab.scenario.schema.matrix import ConditionShape

__all__ = ["EngineFailureShape", "ExceptionShape"]


class EngineFailureShape(ScenarioShape):
    """Engines that cannot program the scenario, and why. The lab then sends nothing and checks only the failure."""

    when: ConditionShape = Field(
        description="The cases: all these values must match.", examples=[{"mode": "nftables", "version": "<1.33.6"}]
    )
    engine_fails: str = Field(
        min_length=1,
        description="A text in the engine's last lines of output. The engine must end, or fail to load its rules, "
        "before the first probe. An engine that prints another failure, or does not fail, is an error.",
        examples=["Interface does not exist"],
    )
    because: str = Field(
        min_length=1, description="The reason; for a bug of the engine, with its number.", examples=["a known bug"]
    )


class ExceptionShape(ScenarioShape):
    """A different expectation, the cases in which it holds, and the reason."""

    when: ConditionShape = Field(description="The cases: those with all these values.", examples=[{"mode": "ipvs"}])
    expect: Expect = Field(
        description="The expectation in these cases. It replaces expect as a whole.",
        examples=[{"outcome": "dropped"}],
    )
    because: str = Field(min_length=1, description="The reason.", examples=["ipvs falls back to all endpoints"])
