"""The checks of a scenario's matrix and of every ``except``. ``proxylab.scenario.cases`` expands the matrix."""

from collections.abc import Iterable, Mapping
from math import prod

from proxylab.scenario.document import Location, Problems, listed, shown
from proxylab.scenario.matrix import EngineFailure, Exceptional, axis_names, network_axes, value_text
from proxylab.scenario.parts import Parts
from proxylab.scenario.steps import StepException
from proxylab.scenario.syntax import sysctl_fault
from proxylab.scenario.versions import VersionRange
from proxylab.scenario.words import Mode

__all__ = ["check_conditions"]

MOST_CASES = 200


def check_conditions(parts: Parts, problems: Problems) -> None:
    """Note unknown axes, too many cases, and exceptions that never hold or that contradict each other.

    Args:
        parts: the scenario's well-formed parts.
        problems: takes what is wrong.
    """
    spec = parts.location["spec"]
    if parts.matrix is not None:
        _check_axes(spec["matrix"], axis_names(), problems)
        axes = parts.matrix.axes
        if spec["matrix"].exists and not axes:
            problems.add(
                spec["matrix"].key, "has no axis", allowed=f"allowed: {listed(axis_names())}, and sysctls below net."
            )
        count = prod(len(values) for axis, values in axes.items() if axis != "family")
        if count > MOST_CASES:
            problems.add(spec["matrix"].key, f"this makes {count} cases", allowed=f"allowed: {MOST_CASES}")
        _check_family(parts, axes, spec["matrix"]["family"], problems)
    _refuse_family(parts.failures, spec["except"], "one engine serves both families", problems)
    _check_exceptions(parts, parts.failures, spec["except"], problems)
    for index, probe in enumerate(parts.probes):
        _check_exceptions(parts, probe.exceptions, spec["probes"][index]["except"], problems)
    for number, step in enumerate(parts.steps):
        at = spec["steps"][number]
        exceptions = step.whole.exceptions if step.whole else ()
        _refuse_family(exceptions, at["except"], "a step happens once for both families", problems)
        _check_exceptions(parts, exceptions, at["except"], problems)
        for index, probe in enumerate(step.probes):
            _check_exceptions(parts, probe.exceptions, at["probes"][index]["except"], problems)


def _check_family(parts: Parts, axes: Mapping[str, tuple[str, ...]], location: Location, problems: Problems) -> None:
    """Note a family to dial that no lab of the scenario has."""
    if parts.network is None:
        return
    there = axes.get("families", (value_text(parts.network.families),))
    known = {family for families in there for family in families.split("+")}
    for index, family in enumerate(axes.get("family", ())):
        if family not in known:
            what = f"no lab of the scenario has {family}"
            problems.add(location[index].spot, what, allowed=f"network.families: {listed(there)}")


def _refuse_family(
    exceptions: Iterable[EngineFailure | StepException | None],
    location: Location,
    what: str,
    problems: Problems,
) -> None:
    """Note exceptions for one family in a step or an engine failure, which cover both families."""
    for index, exception in enumerate(exceptions):
        if exception is not None and exception.when.family is not None:
            problems.add(location[index]["when"]["family"].key, what, allowed="move the exception to a probe")


def _check_axes(location: Location, axes: Iterable[str], problems: Problems) -> None:
    for key in map(str, location.keys):
        if key not in axes and sysctl_fault(key):
            allowed = f"allowed: {listed(axes)}, and sysctls below net."
            problems.add(
                location[key].key, f"{shown(key)} is not an axis", allowed=allowed, word=key, known=tuple(axes)
            )


def _check_exceptions(
    parts: Parts,
    exceptions: Iterable[EngineFailure | Exceptional | StepException | None],
    location: Location,
    problems: Problems,
) -> None:
    possible = _values(parts)
    checked: list[tuple[Location, dict[str, str], VersionRange | None]] = []
    for index, exception in enumerate(exceptions):
        when = location[index]["when"]
        _check_axes(when, (*axis_names(), "version"), problems)
        if exception is None:
            continue
        conditions, version = exception.when.values, exception.when.version
        if not conditions and version is None:
            problems.add(when.spot, "always holds", allowed="add a condition, or change expect instead")
        if possible is not None:
            for axis, value in conditions.items():
                _check_condition(axis, value, possible.get(axis), when[axis], problems)
        for other, earlier, versions in checked:
            alike = all(earlier.get(axis, value) == value for axis, value in conditions.items())
            if alike and (version is None or versions is None or version.meets(versions)):
                line = other.key.position.line
                what = f"overlaps the exception in line {line}: both hold in one case"
                problems.add(when.spot, what, allowed="exceptions must exclude each other")
                break
        checked.append((location[index], conditions, version))


def _values(parts: Parts) -> dict[str, tuple[str, ...]] | None:
    """The values that each axis has in some case; ``None`` if they are unknown."""
    if parts.network is None or parts.matrix is None:
        return None
    fixed = {axis: (value,) for axis, value in network_axes(parts.network).items()}
    return {**fixed, "family": (), "kernel": (), "mode": tuple(Mode), **parts.matrix.axes}


def _check_condition(
    axis: str, value: str, values: tuple[str, ...] | None, location: Location, problems: Problems
) -> None:
    if values == () or (values is None and not sysctl_fault(axis)):
        problems.add(location.key, "is not an axis of the matrix", allowed="add it to spec.matrix")
    elif values is not None and value not in values:
        what = f"no case has {axis} {shown(value)}"
        problems.add(location.spot, what, allowed=f"allowed: {listed(values)}")
