"""Features that the format has and this version cannot run. A change that implements one removes its line here.

Reading a file is complete: every key becomes part of the ``Scenario``, which ``plan`` and ``graph`` show. Only before a
run does this pass go over the same documents and refuse what the lab would ignore. A line names keys by their path
(``*`` for any key, ``[]`` for any item) and the values that cannot run.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from msgspec import Struct

from proxylab.scenario.document import Location
from proxylab.scenario.model import Mode
from proxylab.scenario.parts import Parts
from proxylab.scenario.problems import Problems, listed, shown
from proxylab.scenario.words import RUNNING_MODES

__all__ = ["MISSING", "Missing", "refuse_missing"]


def _any(_value: object) -> bool:
    return True


class Missing(Struct, frozen=True):
    """One feature that cannot run yet.

    ``path`` is below ``spec``; ``values`` are the values that cannot run, or a predicate for them; ``allowed`` names
    the alternatives.
    """

    path: str
    values: Collection[str] | Callable[[object], bool] = _any
    allowed: str = ""

    def fits(self, value: object) -> bool:
        """Whether that value cannot run."""
        if callable(self.values):
            return self.values(value)
        return isinstance(value, str) and value in self.values


_FRONTENDS: Final = "clusterIP, nodePort, externalIP, loadBalancerIP"

MISSING: Final = (
    Missing("streams.*.to.via", {"healthCheckNodePort", "dnsName"}, f"allowed: {_FRONTENDS}"),
    Missing("streams.*.send.protocol", {"SCTP"}, "allowed: TCP, UDP"),
    Missing("streams.*.send.as", {"packet"}, "allowed: connect"),
    *(missing for probe in ("probes.[]", "steps.[].probes.[]") for missing in (Missing(f"{probe}.send.every"),)),
)


def refuse_missing(parts: Parts, configurations: Sequence[Location], problems: Problems) -> None:
    """Note everything in a scenario that cannot run yet.

    Args:
        parts: the scenario's parts.
        configurations: the documents that configure proxies.
        problems: takes a line for each, with ``not yet``.
    """
    spec = parts.location["spec"]
    for missing in MISSING:
        _refuse(missing, spec, problems)
    modes = spec["matrix"]["mode"]
    if modes.exists and not set(RUNNING_MODES) & set(_texts(modes.value)):
        what = "not yet: this version can run none of these modes"
        problems.add(modes.spot, what, allowed=f"allowed: {listed(RUNNING_MODES)}")
    for location in configurations:
        if location["mode"].value == Mode.IPVS:
            _not_yet(location["mode"], f"mode {location['mode'].value}", f"allowed: {listed(RUNNING_MODES)}", problems)


def _refuse(missing: Missing, root: Location, problems: Problems) -> None:
    for location in _found(root, tuple(missing.path.split("."))):
        if not missing.fits(location.value):
            continue
        if missing.values is _any:
            what = "not yet: the format has this key, but this version cannot run it"
            problems.add(location.key, what, allowed=missing.allowed)
        else:
            _not_yet(location, shown(location.value), missing.allowed, problems)


def _not_yet(location: Location, what: str, allowed: str, problems: Problems) -> None:
    problems.add(location.spot, f"not yet: this version cannot run {what}", allowed=allowed)


def _found(root: Location, path: tuple[str, ...]) -> Iterator[Location]:
    """Every key below ``root`` that a path with ``*`` and ``[]`` matches, if the author wrote it."""
    if not path:
        yield root
        return
    value, rest = root.value, path[1:]
    if path[0] == "[]":
        parts: list[str | int] = list(range(len(value))) if isinstance(value, list) else []
    elif path[0] == "*":
        parts = [str(key) for key in value] if isinstance(value, dict) else []
    else:
        parts = [path[0]] if root[path[0]].exists else []
    for part in parts:
        yield from _found(root[part], rest)


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
