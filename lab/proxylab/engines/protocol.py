"""The protocol of all engines, and the choice of one."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from msgspec import field
from msgspec.structs import replace

from proxylab.addresses import Family, IPNetwork
from proxylab.binary_identity import BinaryIdentity
from proxylab.cluster.configuration import Mode, ProxyConfiguration
from proxylab.encoding import Record
from proxylab.engines.engine_names import ENGINES, KUBE_PROXY, read_engine, version_of
from proxylab.errors import CapabilityError
from proxylab.evidence.engine_progress import Progress
from proxylab.scenario.words import HOST
from proxylab.timing import Deadline


class Upstream(Record, frozen=True):
    """A kube-proxy binary, ready to run.

    Attributes:
        binary: its path.
        identity: which binary it is.
        flags: further flags of its command line.
        feature_gates: gates to set, besides those of the scenario's configuration.
        where: the user's value of ``--kube-proxy``, or empty.
    """

    binary: str
    identity: BinaryIdentity
    flags: tuple[str, ...] = ()
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    where: str = ""

    @property
    def version(self) -> str:
        """As the binary prints it, such as ``v1.34.2``."""
        return self.identity.version

    @property
    def options(self) -> tuple[str, ...]:
        """The options of ``proxylab run`` that choose this one."""
        gates = ",".join(f"{name}={str(value).lower()}" for name, value in self.feature_gates.items())
        return (
            *(("--kube-proxy", self.where) if self.where else ()),
            *(("--feature-gates", gates) if gates else ()),
            *(f"--kube-proxy-flag={flag}" for flag in self.flags),
        )


class EngineChoice(Record, frozen=True):
    """Which engine to run and how it is configured, the same for every node.

    Attributes:
        name: what ``--engine`` says.
        cluster_cidrs: the pod networks, by which a proxy detects local traffic unless ``configuration`` has its own.
        configuration: the scenario's ``KubeProxyConfiguration``, or kube-proxy's defaults.
        families: of the cluster's network; each has rules of its own.
        upstream: the binary, where the engine is the real kube-proxy.
        iptables: the variant of iptables that loads the rules; empty for the one that works best on this machine.
        programs: the paths of nft and iptables that proxies run in nodes whose scenario names none.
        kernel: what ``--kernel`` says: the machine's own kernel, or a guest's.
        name_server: what ``--name-server`` says, or empty: the name server of labs whose scenario names none.
        control_plane: what ``--control-plane`` says, or empty: what serves the API if the scenario does not say it.
        privileged: whether proxies and commands in a lab of the machine's root may do what root may.
        sync_seconds: how long a proxy may take to program a change; by default what its mode needs on a busy machine.
    """

    name: str = "embedded/iptables"
    cluster_cidrs: tuple[IPNetwork, ...] = ()
    configuration: ProxyConfiguration = field(default_factory=ProxyConfiguration)
    iptables: str = ""
    families: tuple[Family, ...] = (Family.IPV4,)
    upstream: Upstream | None = None
    kernel: str = HOST
    name_server: str = ""
    control_plane: str = ""
    privileged: bool = False
    sync_seconds: float | None = None
    programs: Mapping[str, str] = field(default_factory=dict)

    @property
    def binary(self) -> BinaryIdentity | None:
        """Which binary runs; ``None`` for an embedded engine, which is a part of proxylab."""
        return self.upstream.identity if self.upstream else None

    @property
    def version(self) -> tuple[int, ...]:
        """The version that the engine behaves like (``version_of``)."""
        return version_of(self.name, self.upstream.version if self.upstream else "")

    def in_mode(self, mode: str) -> "EngineChoice":
        """The same proxy in that mode.

        Raises:
            ValueError: its version of kube-proxy has none.
            CapabilityError: that version has it, but no embedded engine behaves like it.
        """
        facts = Mode(mode).facts
        if self.version < (since := facts.since):
            raise ValueError(f"kube-proxy has mode {mode} since {'.'.join(map(str, since))}, and this is {self.name}")
        if read_engine(self.name).is_upstream and self.version[:2] > (last := facts.last_minor or self.version[:2]):
            raise ValueError(f"kube-proxy has mode {mode} up to {'.'.join(map(str, last))}, and this is {self.name}")
        begun = read_engine(self.name)
        named = replace(begun, mode=mode)
        if begun.version and not begun.is_upstream and str(named) not in ENGINES:
            others = f"{replace(begun, version='')} or {replace(begun, proxy=KUBE_PROXY)}"
            raise CapabilityError(f"an engine {named}, to which a step changes", f"choose {others}")
        return replace(self, name=str(read_engine(str(named))))

    @property
    def options(self) -> tuple[str, ...]:
        """The options of ``proxylab run`` that make this choice, without those that are the default."""
        named = ("--engine", self.name) if self.name != ENGINES[0] else ()
        variant = ("--iptables", self.iptables) if self.iptables else ()
        programs = (word for name, path in self.programs.items() for word in ("--program", f"{name}={path}"))
        kernel = ("--kernel", self.kernel) if self.kernel != HOST else ()
        server = ("--name-server", self.name_server) if self.name_server else ()
        plane = ("--control-plane", self.control_plane) if self.control_plane else ()
        privileged = ("--privileged",) if self.privileged else ()
        patience = ("--sync-seconds", f"{self.sync_seconds:g}") if self.sync_seconds else ()
        return (
            *named,
            *variant,
            *programs,
            *kernel,
            *server,
            *plane,
            *privileged,
            *patience,
            *(self.upstream.options if self.upstream else ()),
        )


class Engine(Protocol):
    """An engine in one node."""

    async def start(self) -> None:
        """Begin to follow the cluster. Raises ``EngineError``."""

    async def wait_synced(self, revision: int, deadline: Deadline) -> None:
        """Return once the rules in the kernel reflect the store at ``revision`` or later. Raises ``EngineError``."""

    async def progress(self, deadline: Deadline) -> Progress:
        """How far it has come; waits until it is up to date or the deadline passes. Changes no rule."""

    async def dump(self) -> str:
        """The rules in the kernel with their counters, as the mode's own tool prints them."""

    def logs(self) -> tuple[str, ...]:
        """The last lines of the engine's log, oldest first."""

    async def pause(self) -> None:
        """Do nothing from now on, like a process that SIGSTOP has stopped. The rules stay."""

    async def resume(self) -> None:
        """Go on after a pause."""

    async def stop(self) -> None:
        """Stop following the cluster. The rules stay, as kube-proxy's do."""


@runtime_checkable
class Killable(Protocol):
    """An engine that is a process of its own."""

    async def kill(self) -> None:
        """End it by SIGKILL, and return when it is gone. The rules stay."""


@runtime_checkable
class Mortal(Protocol):
    """An engine that is a process of its own or has one, which may end at any moment."""

    async def raise_if_ended(self) -> None:
        """Raise ``EngineError`` if the process has ended and was not asked to."""


@runtime_checkable
class Draining(Protocol):
    """An engine that can ask a process of its own, through which packets pass."""

    async def drain(self, *, connections: bool) -> Mapping[str, int] | None:
        """Let the process pass on every datagram that it has, and with ``connections`` open or close each connection.

        Returns:
            How many datagrams it has discarded since it began, by service port; ``None`` if it cannot be asked.
        """


class ModeProcess(Draining, Protocol):
    """A process of a mode, through which packets pass."""

    @property
    def ending(self) -> str:
        """How it has ended without being asked to, as a clause; empty if it has not."""

    async def pause(self) -> None:
        """Stop it by SIGSTOP, and return when all its threads are stopped."""

    def resume(self) -> None:
        """Let it go on by SIGCONT."""


@runtime_checkable
class NodeBound(Protocol):
    """An engine that waits for its Node when it starts, and may end by itself when the Node changes."""

    @property
    def ends_with_node(self) -> bool:
        """Whether it ends when its Node object goes or gets other addresses, as kube-proxy does since 1.37."""

    @property
    def has_given_up(self) -> bool:
        """Whether it has waited long enough for its Node, and went on without one."""

    async def wait_ended(self, deadline: Deadline) -> None:
        """Return when it has ended by itself. Raises ``EngineError`` at the deadline."""


@runtime_checkable
class Forgiving(Protocol):
    """An engine that retries loads of rules that have failed."""

    async def forgive(self) -> None:
        """Loads work again: return once no load is under way, and count no failure until now."""


@runtime_checkable
class Noting(Protocol):
    """An engine whose rules do not show every kind of change."""

    async def note(self, *, flush: bool) -> None:
        """Note how far it has come: Nodes are about to change, or the lab is about to flush its rules."""


@runtime_checkable
class Resting(Protocol):
    """An engine that syncs without a change, too, which clears the counters of its rules."""

    async def rest(self) -> None:
        """Return once no sync is under way or about to begin."""
