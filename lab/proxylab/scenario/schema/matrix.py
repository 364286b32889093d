"""The axes that a matrix may vary: the shapes of ``spec.matrix`` and of ``when``.

``proxylab.scenario.cases`` expands a matrix.
"""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, InstanceOf, JsonValue

from proxylab.addresses import Family
from proxylab.scenario.keys import refused
from proxylab.scenario.model import Mode
from proxylab.scenario.network import Hairpin, InterNode, PodNetwork, families_given
from proxylab.scenario.problems import describe
from proxylab.scenario.schema.base import ScenarioShape, Shape, word_of
from proxylab.scenario.syntax import SysctlValue, distinct
from proxylab.scenario.versions import VersionRange, read_range

__all__ = ["AXES", "ConditionShape", "MatrixShape", "no_axes"]

FamilyWord = Annotated[Family, BeforeValidator(word_of(Family))]
Families = Annotated[list[FamilyWord], AfterValidator(families_given), AfterValidator(distinct)]
PodNetworkWord = Annotated[PodNetwork, BeforeValidator(word_of(PodNetwork))]
InterNodeWord = Annotated[InterNode, BeforeValidator(word_of(InterNode))]
HairpinWord = Annotated[Hairpin, BeforeValidator(word_of(Hairpin))]
ModeWord = Annotated[Mode, BeforeValidator(word_of(Mode))]


def _versions(value: object) -> VersionRange:
    if not isinstance(value, str):
        raise refused(f"must be a range of versions, is {describe(value)}", allowed=_RANGES)
    try:
        return read_range(value)
    except ValueError as error:
        raise refused(str(error), allowed=_RANGES) from None


_RANGES = "write it as '<1.30', '>=1.29', '>=1.29 <1.33.6' or '1.34'"
_SYSCTL_PATTERN = r"^net\."
_SYSCTL_VALUE: dict[str, JsonValue] = {"type": ["integer", "string"]}


class MatrixShape(ScenarioShape):
    """Axes; the scenario runs once for every combination. A sysctl of the nodes is an axis by its dotted name."""

    __pydantic_extra__: dict[str, Annotated[list[SysctlValue], Field(min_length=1), AfterValidator(distinct)]]

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "patternProperties": {
                _SYSCTL_PATTERN: {"type": "array", "minItems": 1, "items": {"type": ["integer", "string"]}}
            },
        },
    )

    families: Annotated[list[Families], Field(min_length=1), AfterValidator(distinct)] | None = Field(
        default=None, description="Values of network.families.", examples=[[["IPv4"], ["IPv6"]]]
    )
    family: Annotated[list[FamilyWord], Field(min_length=1), AfterValidator(distinct)] | None = Field(
        default=None,
        description="Values of to.family, for every probe and stream that has no to.family and dials no address. It "
        "makes no further labs: each lab sends such a probe once over each of its families.",
        examples=[["IPv4", "IPv6"]],
    )
    pod_network: Annotated[list[PodNetworkWord], Field(min_length=1), AfterValidator(distinct)] | None = Field(
        default=None, description="Values of network.podNetwork.", examples=[["ptp", "bridge"]]
    )
    inter_node: Annotated[list[InterNodeWord], Field(min_length=1), AfterValidator(distinct)] | None = Field(
        default=None, description="Values of network.interNode.", examples=[["host-gw", "vxlan"]]
    )
    hairpin: Annotated[list[HairpinWord], Field(min_length=1), AfterValidator(distinct)] | None = Field(
        default=None, description="Values of network.hairpin.", examples=[["hairpin-veth", "none"]]
    )
    mode: Annotated[list[ModeWord], Field(min_length=1), AfterValidator(distinct)] | None = Field(
        default=None,
        description="The proxy modes that the scenario is about. The default is all of them.",
        examples=[["iptables", "ipvs"]],
    )


class ConditionShape(ScenarioShape):
    """The cases in which a different expectation holds: all these values must match."""

    __pydantic_extra__: dict[str, SysctlValue]

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "additionalProperties": False,
            "patternProperties": {_SYSCTL_PATTERN: _SYSCTL_VALUE},
        },
    )

    families: Families | None = Field(default=None, description="The value of network.families.", examples=[["IPv6"]])
    family: FamilyWord | None = Field(default=None, description="The family that a probe dials.", examples=["IPv6"])
    pod_network: PodNetworkWord | None = Field(
        default=None, description="The value of network.podNetwork.", examples=["bridge"]
    )
    inter_node: InterNodeWord | None = Field(
        default=None, description="The value of network.interNode.", examples=["vxlan"]
    )
    hairpin: HairpinWord | None = Field(default=None, description="The value of network.hairpin.", examples=["none"])
    mode: ModeWord | None = Field(default=None, description="The mode of the proxy.", examples=["ipvs"])
    version: Annotated[InstanceOf[VersionRange], BeforeValidator(_versions, json_schema_input_type=str)] | None = Field(
        default=None,
        description="The versions of the proxy: from one on, before one, between two, or one alone. As a bound, a "
        "version without a patch number means its first patch; alone, it means all its patches.",
        examples=["<1.30", ">=1.29", ">=1.29 <1.33.6", "1.34"],
    )


def no_axes() -> MatrixShape:
    """The matrix of a scenario that has none."""
    return MatrixShape.model_construct()


def _axes(shape: type[Shape]) -> tuple[str, ...]:
    return tuple(str(field.alias) for field in shape.model_fields.values())


AXES = _axes(MatrixShape)
"""Every axis but the sysctls, in the order in which a case's id names their values."""
