"""Engines of single nodes: ``spec.engines``, and ``engines`` of a step's change.

The user of a lab chooses the engine of all nodes. A scenario may say for a node what differs: the mode, the version,
the proxy or its configuration. ``EngineWords`` are what an author writes for an engine. ``proxylab.scenario.
patched_engines`` applies the patches of configurations, and ``proxylab.client.node_engines`` chooses what runs then.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from msgspec import Struct, field

from proxylab.cluster.configuration import Mode, ProxyConfiguration
from proxylab.scenario.document import listed, shown
from proxylab.scenario.keys import Check, Declared, Key, Read, refused

_WORDS: Final = re.compile(
    r"(?:(?:(?P<proxy>embedded|kube-proxy)(?:@(?P<of_proxy>v\d+\.\d+(?:\.\d+)?))?|(?P<version>v\d+\.\d+(?:\.\d+)?))/)?"
    r"(?P<mode>[a-z]+)"
)
_EXAMPLES: Final = "v1.34/iptables, kube-proxy@v1.37/nftables"


class EngineWords(Struct, frozen=True):
    """What an author writes for an engine: ``nftables``, ``v1.34/iptables``, ``kube-proxy@v1.37/nftables``.

    ``proxy`` and ``version`` are empty where the node's proxy keeps its own.
    """

    mode: Mode
    proxy: str = ""
    version: str = ""

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The parts of a text; ``None`` if it is no engine."""
        found = _WORDS.fullmatch(text)
        if found is None or found["mode"] not in tuple(Mode):
            return None
        return cls(Mode(found["mode"]), found["proxy"] or "", found["of_proxy"] or found["version"] or "")


class EngineAction(StrEnum):
    """An action on a node's engine.

    It is SIGKILL, a clean stop, a start, a clean stop and start, a flush of its rules, SIGSTOP, or SIGCONT after it.
    """

    KILL = "kill"
    STOP = "stop"
    START = "start"
    RESTART = "restart"
    FLUSH = "flush"
    PAUSE = "pause"
    RESUME = "resume"


def _engine(text: str) -> str:
    if EngineWords.read(text) is None:
        raise refused(
            f"{shown(text)} is no engine", allowed=f"allowed: {listed(Mode)}, {_EXAMPLES}", word=text, known=Mode
        )
    return text


def _with_engine(value: object) -> object:
    return {"engine": value} if isinstance(value, str) else value


def _with_action(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value in tuple(EngineAction):
        return {"action": value}
    if EngineWords.read(value) is None:
        known = (*EngineAction, *Mode)
        allowed = f"allowed: {listed(known)}, and engines such as {_EXAMPLES}"
        raise refused(f"{shown(value)} is unknown", allowed=allowed, word=value, known=known)
    return {"engine": value}


_EngineText = Annotated[
    str,
    Check(_engine),
    Key(
        "The engine: a mode, which keeps the proxy and its version; v1.34/iptables, which keeps the proxy; or a name "
        "as `proxylab engines` lists it.",
        ["v1.34/iptables", "kube-proxy@v1.37/nftables"],
    ),
]
_Patch = Annotated[
    Mapping[str, Any],
    Key(
        "A merge patch (RFC 7386) of the KubeProxyConfiguration that the node's proxy has read, or of the file's. It "
        "changes what this proxy does, and what is promised of it.",
        [{"nftables": {"masqueradeAll": True}}],
    ),
]


class NodeEngine(Declared, frozen=True, kw_only=True):
    """The engine of one node, where it differs from that of the others. Text stands for the engine alone."""

    engine: _EngineText = ""
    configuration: _Patch = field(default_factory=dict)
    # Once the patch is applied:
    settings: ProxyConfiguration | None = None

    @property
    def mode(self) -> str:
        """The mode that it says; empty for the mode that the node's engine has."""
        words = EngineWords.read(self.engine)
        return words.mode if words else ""


class EngineChange(Declared, frozen=True, kw_only=True):
    """What a step does to a node's engine. Text stands for an action, or for the engine to restart as."""

    engine: _EngineText = ""
    configuration: _Patch = field(default_factory=dict)
    action: Annotated[
        EngineAction,
        Key("What is done to it. An engine that is stopped, or was killed, starts with action: start.", ["start"]),
    ] = EngineAction.RESTART
    # Once the patch is applied:
    settings: ProxyConfiguration | None = None

    @property
    def becomes(self) -> NodeEngine:
        """What it says of the engine that runs then."""
        return NodeEngine(engine=self.engine, settings=self.settings)

    @property
    def mode(self) -> str:
        """The mode in which it starts the engine; empty for the mode that the engine had."""
        return self.becomes.mode

    @property
    def ends(self) -> bool:
        """Whether it ends the engine that runs, if only to start another one."""
        return self.action in (EngineAction.KILL, EngineAction.STOP, EngineAction.RESTART)

    @property
    def begins(self) -> bool:
        """Whether an engine runs afterwards that did not run before."""
        return self.action in (EngineAction.START, EngineAction.RESTART)


AnyNodeEngine = Annotated[NodeEngine, Read(_with_engine, str | NodeEngine)]
AnyEngineChange = Annotated[EngineChange, Read(_with_action, EngineAction | Mode | str | EngineChange)]
