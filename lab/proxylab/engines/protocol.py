"""The one protocol every engine keeps.

Owns: ``Engine``, ``Killable``, ``Noting``, ``EngineChoice`` and ``Upstream``.
Must not: know whose engine it is. A scenario speaks of modes and versions only.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol, runtime_checkable

from proxylab.addresses import Family, IPNetwork
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.names import ENGINES, version_of
from proxylab.evidence.engine_progress import Progress
from proxylab.frozen import dataclass
from proxylab.timing import Deadline

__all__ = ["Engine", "EngineChoice", "Killable", "Noting", "Upstream"]


@dataclass(frozen=True, slots=True)
class Upstream:
    """A kube-proxy that is there to be run.

    Attributes:
        binary: its path, absolute.
        version: as it says itself, such as ``v1.34.2``.
        flags: further ones for its command line.
        feature_gates: those that are to be switched, on top of what the scenario's configuration says.
        where: what the user said of where it comes from, if anything.
    """

    binary: str
    version: str
    flags: tuple[str, ...] = ()
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    where: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """What a run must be told to have this one, as ``proxylab run`` spells it."""
        gates = ",".join(f"{name}={str(value).lower()}" for name, value in self.feature_gates.items())
        return (
            *(("--kube-proxy", self.where) if self.where else ()),
            *(("--feature-gates", gates) if gates else ()),
            *(f"--kube-proxy-flag={flag}" for flag in self.flags),
        )


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine to run and how it is configured, the same for every node.

    Attributes:
        name: what ``--engine`` says.
        cluster_cidrs: the pod networks, by which a proxy tells pods from others unless ``configuration`` has its own.
        configuration: the scenario's ``KubeProxyConfiguration``, or kube-proxy's defaults.
        families: those of the cluster's network; each has rules of its own.
        upstream: what runs where the engine is the real kube-proxy.
        iptables: which variant of iptables loads the rules; empty for whichever works best on this machine.
    """

    name: str = "embedded/iptables"
    cluster_cidrs: tuple[IPNetwork, ...] = ()
    configuration: ProxyConfiguration = field(default_factory=ProxyConfiguration)
    iptables: str = ""
    families: tuple[Family, ...] = (Family.IPV4,)
    upstream: Upstream | None = None

    @property
    def version(self) -> tuple[int, ...]:
        """The version that it behaves like (``version_of``)."""
        return version_of(self.name, self.upstream.version if self.upstream else "")

    @property
    def options(self) -> tuple[str, ...]:
        """What of it a run must be told beyond the defaults, as ``proxylab run`` spells it."""
        named = ("--engine", self.name) if self.name != ENGINES[0] else ()
        variant = ("--iptables", self.iptables) if self.iptables else ()
        return (*named, *variant, *(self.upstream.options if self.upstream else ()))


class Engine(Protocol):
    """An engine in one node."""

    async def start(self) -> None:
        """Begin to follow the cluster. Raises ``EngineError`` when it cannot."""

    async def wait_synced(self, revision: int, deadline: Deadline) -> None:
        """Return once the rules in the kernel reflect the store at ``revision`` or later. Raises ``EngineError``."""

    async def progress(self, deadline: Deadline) -> Progress:
        """How far it has come; until the deadline it may come further. Changes nothing that it is to program."""

    async def dump(self) -> str:
        """The rules as the kernel holds them, with counters, as the mode's own tool prints them."""

    def logs(self) -> tuple[str, ...]:
        """What the engine said, oldest first; bounded."""

    async def stop(self) -> None:
        """Stop following the cluster. Rules stay, as kube-proxy's do."""


@runtime_checkable
class Killable(Protocol):
    """An engine that is a process of its own."""

    async def kill(self) -> None:
        """End it by SIGKILL, and return when it is gone. What stands in the kernel stays."""


@runtime_checkable
class Noting(Protocol):
    """An engine whose rules do not show whether it has taken up every kind of change."""

    async def note(self, *, flush: bool) -> None:
        """Note how far it has come: Nodes are about to change, or with ``flush`` its rules are about to be removed."""
