"""The engine of every node of a lab: what the user chose, and what the scenario says of nodes and in steps.

A scenario may name versions of kube-proxy, which run beside each other during an upgrade. Their binaries come from the
cache. A build takes minutes, which a user of ``proxylab run`` does not expect from a line in a file; so a missing
binary is a reason to skip, with the command that obtains it.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from proxylab.binaries.choose import Sources, fits, with_mode
from proxylab.engines.engine_names import AS_NEWEST, ENGINES, KUBE_PROXY, EngineName, read_engine
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.errors import CapabilityError, EngineError
from proxylab.scenario.model import Scenario
from proxylab.scenario.node_engines import EngineWords, NodeEngine

FindUpstream = Callable[[EngineName], Upstream]
"""Finds the binary of a kube-proxy that a scenario names. Raises ``CapabilityError``."""

_EMBEDDED: Final = "embedded"


def configured(chosen: EngineChoice, scenario: Scenario) -> EngineChoice:
    """The engine of all nodes of which the scenario says nothing, with the scenario's network and configuration."""
    return replace(
        chosen,
        cluster_cidrs=scenario.network.pod_cidrs,
        families=scenario.network.families,
        configuration=scenario.proxy or chosen.configuration,
    )


def engines_by_step(
    chosen: EngineChoice, scenario: Scenario, find: FindUpstream | None = None
) -> tuple[Mapping[str, EngineChoice], ...]:
    """The engine of every node when the lab begins, and after each step.

    ``find`` finds binaries that the user has not chosen; by default in the cache.

    Raises:
        CapabilityError: there is no such engine here.
        EngineError: an engine has no mode in which the scenario runs it.
    """
    find = find or find_kept
    common = configured(chosen, scenario)
    now = {node.name: common for node in scenario.nodes}
    for node, said in scenario.engines.items():
        now[node] = _engine(now[node], said, find, node, "cannot begin in mode")
    found = [now]
    for step in scenario.steps:
        changes = {node: change.becomes for node, change in step.change.engines.items() if change.begins}
        now = now | {
            node: _engine(now[node], said, find, node, f"cannot make step {step.name!r}, which changes it to mode")
            for node, said in changes.items()
        }
        found.append(now)
    return tuple(found)


def find_kept(name: EngineName) -> Upstream:
    """The newest fitting kube-proxy of the cache, from a release or a published module."""
    kept = [each for each in with_mode(Sources.of_user().obtained(), name.mode) if fits(each.version, name.version)]
    if not kept:
        wanted = f"{KUBE_PROXY}{name.version and '@'}{name.version}"
        command = f"proxylab engines --obtain {name.version}".rstrip()
        raise CapabilityError(f"{wanted}, which the scenario runs", f"type `{command}`, once")
    return Upstream(str(kept[-1].path), kept[-1].identity)


def _engine(before: EngineChoice, said: NodeEngine, find: FindUpstream, node: str, what: str) -> EngineChoice:
    try:
        return _as_said(before, said, find)
    except ValueError as error:
        raise EngineError(node, f"{what} {said.mode}", str(error)) from error


def _as_said(before: EngineChoice, said: NodeEngine, find: FindUpstream) -> EngineChoice:
    """What runs in a node after ``before``. Raises ``ValueError`` for a mode that its version does not have."""
    if said.settings is not None:
        before = replace(before, configuration=said.settings)
    words = EngineWords.read(said.engine)
    if words is None:
        return before
    if not words.proxy and not words.version:
        return before.in_mode(words.mode)
    if (words.proxy or read_engine(before.name).proxy) == _EMBEDDED:
        return replace(before, name=_embedded(words), upstream=None)
    upstream, is_open = before.upstream, not words.version and read_engine(before.name).version
    if upstream is None or is_open or not fits(upstream.version, words.version):
        found = find(EngineName(KUBE_PROXY, words.version, words.mode))
        # The user's flags and gates are for every kube-proxy of the lab; the file that the user names is only one.
        upstream = (
            found if upstream is None else replace(upstream, binary=found.binary, identity=found.identity, where="")
        )
    # Any mode that each version has; ``in_mode`` refuses one that this version lacks.
    begun = EngineName(KUBE_PROXY, words.version, "iptables")
    return replace(before, name=str(begun), upstream=upstream).in_mode(words.mode)


def _embedded(words: EngineWords) -> str:
    """The embedded engine of a version and mode. Raises ``CapabilityError``."""
    minor = ".".join(words.version.split(".")[:2])
    named = str(EngineName(_EMBEDDED, minor, words.mode))
    if minor and named in ENGINES:
        return named
    if not minor or minor in AS_NEWEST:
        return str(EngineName(_EMBEDDED, "", words.mode))
    raise CapabilityError(
        f"an embedded engine that behaves like {words.version} in mode {words.mode}", "choose kube-proxy"
    )
