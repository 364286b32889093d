"""``spec.matrix``, ``when`` and ``except``: the axes of a scenario's cases, and what differs in some of them."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from msgspec import field

from proxylab.addresses import Family
from proxylab.capability import CapabilityName
from proxylab.cluster.configuration import Mode
from proxylab.scenario.document import describe, shown
from proxylab.scenario.expect import Expect
from proxylab.scenario.keys import NOT_EMPTY, Check, Declared, Key, OtherKeys, Read, declared_keys, refused
from proxylab.scenario.network import Families, Hairpin, InterNode, Network, PodNetwork
from proxylab.scenario.syntax import SysctlValue, distinct
from proxylab.scenario.versions import VersionRange, read_range
from proxylab.scenario.words import DEBIAN, HOST, UML, Position

_RANGES: Final = "write it as '<1.30', '>=1.29', '>=1.29 <1.33.6' or '1.34'"
_GATE: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
_SYSCTLS: Final = OtherKeys("^net\\.")

T = TypeVar("T")
_Axis = Annotated[tuple[T, ...], NOT_EMPTY, Check(distinct)]


def value_text(value: object) -> str:
    """The value of an axis in the form that reports print: ``IPv4+IPv6``, ``bridge``, ``1``, ``true``."""
    if isinstance(value, bool):
        return str(value).lower()
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _kernel(text: str) -> str:
    if text not in (HOST, UML) and "/" not in text and not text.startswith(DEBIAN):
        raise refused(f"{shown(text)} is not a kernel", allowed=f"allowed: {HOST}, {UML}, {DEBIAN}VERSION, or a path")
    return text


def _gate(name: str) -> str:
    if not _GATE.fullmatch(name):
        raise refused(f"{shown(name)} is no feature gate", allowed="write it as AllowServiceExternalIPs")
    return name


def _by_axis(record: "Matrix | When") -> dict[str, Any]:
    """The values that the author gives, by axis, in the order of the record's fields."""
    aliases = {key.name: key.alias for key in declared_keys(type(record))}
    values: dict[str, Any] = {}
    for name in record.__struct_fields__:
        if name in ("sysctls", "feature_gates"):
            values |= getattr(record, name)
        elif value := getattr(record, name):
            values[aliases[name]] = value
    return values


def network_axes(network: Network) -> dict[str, str]:
    """The value of each axis that the network itself has."""
    return {
        "families": value_text(network.families),
        "podNetwork": network.pod_network,
        "interNode": network.inter_node,
        "hairpin": network.hairpin,
    }


class Matrix(Declared, frozen=True, kw_only=True):
    """Axes; the scenario runs once for every combination. A sysctl of the nodes is an axis by its dotted name."""

    # The fields are in the order in which a case's id names their values.
    families: Annotated[
        _Axis[Families],
        Key("Values of network.families.", [[["IPv4"], ["IPv6"]]]),
    ] = ()
    family: Annotated[
        _Axis[Family],
        Key(
            "Values of to.family, for every probe and stream that has no to.family and dials no address. It makes no "
            "further labs: each lab sends such a probe once over each of its families.",
            [["IPv4", "IPv6"]],
        ),
    ] = ()
    pod_network: Annotated[
        _Axis[PodNetwork],
        Key("Values of network.podNetwork.", [["ptp", "bridge"]]),
    ] = ()
    inter_node: Annotated[
        _Axis[InterNode],
        Key("Values of network.interNode.", [["host-gw", "vxlan"]]),
    ] = ()
    hairpin: Annotated[
        _Axis[Hairpin],
        Key("Values of network.hairpin.", [["hairpin-veth", "none"]]),
    ] = ()
    sysctls: Annotated[Mapping[str, _Axis[SysctlValue]], _SYSCTLS] = field(default_factory=dict)
    mode: Annotated[
        _Axis[Mode],
        Key("The proxy modes that the scenario is about. The default is all of them.", [["iptables", "ipvs"]]),
    ] = ()
    feature_gates: Annotated[
        Mapping[Annotated[str, Check(_gate)], _Axis[bool]],
        Key(
            "Feature gates of the proxies by name, each with its values, in place of those of the file's "
            "KubeProxyConfiguration. Each is an axis by its own name.",
            [{"AllowServiceExternalIPs": [True, False]}],
        ),
    ] = field(default_factory=dict)
    kernel: Annotated[
        _Axis[Annotated[str, Check(_kernel)]],
        Key(
            "The kernels of the labs: host, uml, debian:VERSION, or the path of one, as for --kernel, which a scenario "
            "with this axis ignores.",
            [["host", "uml"]],
        ),
    ] = ()

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The values of each axis that the author gives, in the form that reports print."""
        return {axis: tuple(map(value_text, values)) for axis, values in _by_axis(self).items()}


def axis_names() -> tuple[str, ...]:
    """Every axis but the sysctls."""
    return tuple(key.alias for key in declared_keys(Matrix))


def _versions(value: object) -> VersionRange:
    if not isinstance(value, str):
        raise refused(f"must be a range of versions, is {describe(value)}", allowed=_RANGES)
    try:
        return read_range(value)
    except ValueError as error:
        raise refused(str(error), allowed=_RANGES) from None


class When(Declared, frozen=True, kw_only=True):
    """The cases in which a different expectation holds: all these values must match."""

    families: Annotated[Families | None, Key("The value of network.families.", [["IPv6"]])] = None
    family: Annotated[Family | None, Key("The family that a probe dials.", ["IPv6"])] = None
    pod_network: Annotated[PodNetwork | None, Key("The value of network.podNetwork.", ["bridge"])] = None
    inter_node: Annotated[InterNode | None, Key("The value of network.interNode.", ["vxlan"])] = None
    hairpin: Annotated[Hairpin | None, Key("The value of network.hairpin.", ["none"])] = None
    mode: Annotated[Mode | None, Key("The mode of the proxy.", ["ipvs"])] = None
    feature_gates: Annotated[
        Mapping[Annotated[str, Check(_gate)], bool],
        Key("Feature gates, where they are axes of the matrix.", [{"AllowServiceExternalIPs": False}]),
    ] = field(default_factory=dict)
    kernel: Annotated[str | None, Key("The kernel, where kernel is an axis of the matrix.", ["uml"])] = None
    version: Annotated[
        VersionRange | None,
        Read(_versions, str),
        Key(
            "The versions of the proxy: from one on, before one, between two, or one alone. As a bound, a version "
            "without a patch number means its first patch; alone, it means all its patches.",
            ["<1.30", ">=1.29", ">=1.29 <1.33.6", "1.34"],
        ),
    ] = None
    sysctls: Annotated[Mapping[str, SysctlValue], _SYSCTLS] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, str]:
        """The value of each axis, in the form that reports print; versions are not an axis."""
        return {axis: value_text(value) for axis, value in _by_axis(self).items() if axis != "version"}


class Requirements(Declared, frozen=True, kw_only=True):
    """What the proxy and the kernel must have besides what the lab finds out by itself."""

    version: Annotated[
        VersionRange | None,
        Read(_versions, str),
        Key("The versions of the proxy, where others lack what the whole scenario is about.", [">=1.29"]),
    ] = None
    kernel: Annotated[
        VersionRange | None,
        Read(_versions, str),
        Key("The releases of the kernel: from one on, before one, or between two.", [">=6.8", ">=5.17 <6.16"]),
    ] = None
    capabilities: Annotated[
        tuple[CapabilityName, ...],
        Check(distinct),
        Key("What `proxylab doctor` must find, by the names that it prints.", [["IPVS", "VXLAN devices"]]),
    ] = ()


class EngineFailure(Declared, frozen=True, kw_only=True):
    """Engines that cannot program the scenario, and why. The lab then sends nothing and checks only the failure."""

    when: Annotated[When, Key("The cases: all these values must match.", [{"mode": "nftables", "version": "<1.33.6"}])]
    says: Annotated[
        str,
        NOT_EMPTY,
        Key(
            "A text in the engine's last lines of output. The engine must end, or fail to load its rules, before the "
            "first probe. An engine that prints another failure, or does not fail, is an error.",
            ["Interface does not exist"],
            alias="engineFails",
        ),
    ]
    because: Annotated[str, NOT_EMPTY, Key("The reason; for a bug of the engine, with its number.", ["a known bug"])]
    position: Position


class Exceptional(Declared, frozen=True, kw_only=True):
    """A different expectation, the cases in which it holds, and the reason."""

    when: Annotated[When, Key("The cases: those with all these values.", [{"mode": "ipvs"}])]
    expect: Annotated[
        Expect,
        Key("The expectation in these cases. It replaces expect as a whole.", [{"outcome": "dropped"}]),
    ]
    because: Annotated[str, NOT_EMPTY, Key("The reason.", ["ipvs falls back to all endpoints"])]
    position: Position
