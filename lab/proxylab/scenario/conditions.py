"""The matrix of a scenario, and the exceptions of it, of its probes and steps, against each other.

Owns: the checks of axes and of ``except``, and the values of axes as they are compared and shown.
Must not: expand a matrix (``proxylab.scenario.cases`` does, once all is well).
"""

from collections.abc import Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from proxylab.scenario.document import Location
from proxylab.scenario.model import Mode
from proxylab.scenario.parts import Parts
from proxylab.scenario.problems import Problems, listed, shown
from proxylab.scenario.schema.expect import EngineFailureShape, ExceptionShape
from proxylab.scenario.schema.matrix import AXES, ConditionShape, MatrixShape
from proxylab.scenario.schema.syntax import sysctl_fault
from proxylab.scenario.versions import VersionRange

if TYPE_CHECKING:
    from proxylab.scenario.schema.step import StepExceptionShape

__all__ = ["axes_of", "check_conditions", "conditions_of", "value_text"]

MOST_CASES = 200


def value_text(value: object) -> str:
    """The value of an axis as it is compared and shown: ``IPv4+IPv6``, ``bridge``, ``1``."""
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def axes_of(matrix: MatrixShape) -> dict[str, tuple[str, ...]]:
    """The axes that are given, in the order of a case's id: families, family, wiring, sysctls, mode."""
    named = {
        str(field.alias): getattr(matrix, name) for name, field in MatrixShape.model_fields.items() if name != "mode"
    }
    axes = {**named, **(matrix.model_extra or {}), "mode": matrix.mode}
    return {axis: tuple(map(value_text, values)) for axis, values in axes.items() if values is not None}


def conditions_of(when: ConditionShape) -> dict[str, str]:
    """What a condition asks for, by axis; versions are no axis."""
    named = {
        str(field.alias): getattr(when, name)
        for name, field in ConditionShape.model_fields.items()
        if name != "version"
    }
    return {
        axis: value_text(value) for axis, value in {**named, **(when.model_extra or {})}.items() if value is not None
    }


def check_conditions(parts: Parts, problems: Problems) -> None:
    """Note axes that are none, too many cases, and exceptions that never hold or that contradict each other.

    Args:
        parts: the scenario's well-formed parts.
        problems: takes what is wrong.
    """
    spec = parts.location["spec"]
    if parts.matrix is not None:
        _check_axes(spec["matrix"], AXES, problems)
        axes = axes_of(parts.matrix)
        if spec["matrix"].exists and not axes:
            problems.add(spec["matrix"].key, "has no axis", allowed=f"allowed: {listed(AXES)}, and sysctls below net.")
        count = prod(len(values) for axis, values in axes.items() if axis != "family")
        if count > MOST_CASES:
            problems.add(spec["matrix"].key, f"this makes {count} cases", allowed=f"allowed: {MOST_CASES}")
        _check_family(parts, axes, spec["matrix"]["family"], problems)
    _refuse_family(parts.failures, spec["except"], "an engine runs once for both families", problems)
    _check_exceptions(parts, parts.failures, spec["except"], problems)
    for index, probe in enumerate(parts.probes):
        _check_exceptions(parts, probe.exceptions, spec["probes"][index]["except"], problems)
    for number, step in enumerate(parts.steps):
        at = spec["steps"][number]
        exceptions = step.shape.exceptions if step.shape else ()
        _refuse_family(exceptions, at["except"], "a step is made once for both families", problems)
        _check_exceptions(parts, exceptions, at["except"], problems)
        for index, probe in enumerate(step.probes):
            _check_exceptions(parts, probe.exceptions, at["probes"][index]["except"], problems)


def _check_family(parts: Parts, axes: Mapping[str, tuple[str, ...]], location: Location, problems: Problems) -> None:
    """Note a family that is to be dialled, and that no lab of the scenario has."""
    if parts.network is None:
        return
    there = axes.get("families", (value_text(parts.network.families),))
    known = {family for families in there for family in families.split("+")}
    for index, family in enumerate(axes.get("family", ())):
        if family not in known:
            what = f"no lab of the scenario has {family}"
            problems.add(location[index].spot, what, allowed=f"network.families: {listed(there)}")


def _refuse_family(
    exceptions: "Iterable[EngineFailureShape | StepExceptionShape | None]",
    location: Location,
    what: str,
    problems: Problems,
) -> None:
    """Note exceptions for one family of what dials nothing, and is there once for all that do."""
    for index, exception in enumerate(exceptions):
        if exception is not None and exception.when.family is not None:
            problems.add(location[index]["when"]["family"].key, what, allowed="say it in a probe")


def _check_axes(location: Location, axes: Iterable[str], problems: Problems) -> None:
    for key in map(str, location.keys):
        if key not in axes and sysctl_fault(key):
            allowed = f"allowed: {listed(axes)}, and sysctls below net."
            problems.add(location[key].key, f"{shown(key)} is no axis", allowed=allowed, word=key, known=tuple(axes))


def _check_exceptions(
    parts: Parts,
    exceptions: "Iterable[EngineFailureShape | ExceptionShape | StepExceptionShape | None]",
    location: Location,
    problems: Problems,
) -> None:
    possible = None if parts.matrix is None or parts.network is None else _values(parts)
    told: list[tuple[Location, dict[str, str], VersionRange | None]] = []
    for index, exception in enumerate(exceptions):
        when = location[index]["when"]
        _check_axes(when, (*AXES, "version"), problems)
        if exception is None:
            continue
        conditions, version = conditions_of(exception.when), exception.when.version
        if not conditions and version is None:
            problems.add(when.spot, "holds always", allowed="say when, or say it in expect")
        for axis, value in conditions.items() if possible is not None else ():
            _check_condition(axis, value, (possible or {}).get(axis), when[axis], problems)
        for other, earlier, versions in told:
            alike = all(earlier.get(axis, value) == value for axis, value in conditions.items())
            if alike and (version is None or versions is None or version.meets(versions)):
                line = other.key.position.line
                what = f"holds in a case where the exception in line {line} holds too"
                problems.add(when.spot, what, allowed="exceptions exclude each other")
                break
        told.append((location[index], conditions, version))


def _values(parts: Parts) -> dict[str, tuple[str, ...] | None]:
    """The values that each axis has in some case; ``None`` where they cannot be known."""
    network, matrix = parts.network, parts.matrix
    fixed: Mapping[str, Any] = {
        "families": network and network.families,
        "podNetwork": network and network.pod_network,
        "interNode": network and network.inter_node,
        "hairpin": network and network.hairpin,
    }
    values: dict[str, tuple[str, ...] | None] = {axis: (value_text(value),) for axis, value in fixed.items()}
    return {**values, "family": (), "mode": tuple(Mode), **(axes_of(matrix) if matrix else {})}


def _check_condition(
    axis: str, value: str, values: tuple[str, ...] | None, location: Location, problems: Problems
) -> None:
    if values == () or (values is None and not sysctl_fault(axis)):
        problems.add(location.key, "is no axis of the matrix", allowed="add it to spec.matrix")
    elif values is not None and value not in values:
        what = f"no case has {axis} {shown(value)}"
        problems.add(location.spot, what, allowed=f"there: {listed(values)}")
