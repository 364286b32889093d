"""What Kubernetes promises for Services: the rows of ``promises.yaml``, which ``expect.proves`` names by their ids.

An id is the row itself, such as ``externalTrafficPolicy=Local/nodePort/outside/remote-endpoint/drop``: a field of the
API or of kube-proxy's configuration, with its value if that matters; then who sends, to which frontend, over which
family and protocol, in which mode of the proxy; then the state of the endpoints; and last what becomes of the packet.
A part that is left out does not matter. The parts are told apart by their words, so their order is free up to the
last one.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from proxylab.addresses import Family, Transport
from proxylab.cluster.configuration import Mode
from proxylab.encoding import Record
from proxylab.scenario.document import shown
from proxylab.scenario.keys import Check, Key, refused
from proxylab.scenario.words import Frontend

_TABLE: Final = Path(__file__).with_name("promises.yaml")

_SENDERS: Final = frozenset(
    {
        "hostNetwork-pod",
        "itself",
        "localhost",
        "neighbour",
        "node",
        "node-elsewhere",
        "outside",
        "pod",
        "pod-elsewhere",
    }
)
"""``itself`` is a pod that is the endpoint, ``localhost`` a node that dials 127.0.0.1, ``neighbour`` a host on a node's
own link. One that is ``elsewhere`` dials another node than its own."""


class PromisedResult(StrEnum):
    """What becomes of the packet: the last part of an id."""

    ANSWER = "answer"
    CHOOSE = "choose"
    CLOSE = "close"
    DROP = "drop"
    FOLLOW = "follow"
    KEEP = "keep"
    MASQUERADE = "masquerade"
    PRESERVE_SOURCE = "preserve-source"
    REFUSE = "refuse"
    REJECT = "reject"
    RESOLVE = "resolve"
    SERVE = "serve"
    SPREAD = "spread"
    STICK = "stick"
    UNTRANSLATED = "untranslated"

    @property
    def shown_by(self) -> frozenset[str]:
        """The expectations of a probe or stream of which one must fail, if the promise is broken."""
        return _SHOWN_BY[self]


_OUTCOME: Final = frozenset({"outcome"})
_SOURCE: Final = frozenset({"source"})
_BACKENDS: Final = frozenset({"backends", "spread"})
_STREAM: Final = frozenset({"backend", "backends", "conntrack", "lost", "outcome", "rejected", "reply", "resets"})
_SHOWN_BY: Final = {
    PromisedResult.ANSWER: frozenset({"http", "outcome"}),
    PromisedResult.CHOOSE: _BACKENDS,
    PromisedResult.CLOSE: _OUTCOME,
    PromisedResult.DROP: _OUTCOME,
    PromisedResult.FOLLOW: _STREAM,
    PromisedResult.KEEP: _STREAM,
    PromisedResult.MASQUERADE: _SOURCE,
    PromisedResult.PRESERVE_SOURCE: _SOURCE,
    PromisedResult.REFUSE: _OUTCOME,
    PromisedResult.REJECT: _OUTCOME,
    PromisedResult.RESOLVE: frozenset({"name", "backends", "outcome"}),
    PromisedResult.SERVE: frozenset({"outcome", "backends", "endpoint", "reply"}),
    PromisedResult.SPREAD: _BACKENDS,
    PromisedResult.STICK: _BACKENDS,
    PromisedResult.UNTRANSLATED: _OUTCOME,
}


class Promise(Record, frozen=True, kw_only=True):
    """One row. An empty part does not matter.

    Attributes:
        id: the row as a word.
        text: the promise in one sentence.
        source: the URL of the page that makes it.
        field: the field of the API or of the configuration.
        state: of the endpoints, or of the setting, in words of the row.
    """

    id: str
    text: str
    source: str
    field: str
    value: str
    sender: str
    frontend: str
    state: str
    family: str
    protocol: str
    mode: str
    result: PromisedResult


@cache
def promises() -> Mapping[str, Promise]:
    """All rows by their ids, in the order of the file."""
    return {name: _promise(name, row, sources()) for name, row in _written()["promises"].items()}


def sources() -> Mapping[str, str]:
    """The URL of each page that makes promises, by the short name that rows use."""
    pages: Mapping[str, str] = _written()["sources"]
    return pages


@cache
def _written() -> Mapping[str, Any]:
    import yaml  # noqa: PLC0415  # pytest's start does not pay for it

    return yaml.load(_TABLE.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # type: ignore[no-any-return]  # noqa: S506


def _promise(name: str, row: Mapping[str, Any], pages: Mapping[str, str]) -> Promise:
    subject, *parts, result = name.split("/")
    field, _, value = subject.partition("=")
    page, mark, heading = row["source"].partition("#")

    def taken(words: frozenset[str]) -> str:
        found = [part for part in parts if part in words]
        parts[:] = [part for part in parts if part not in words]
        return ", ".join(found)

    return Promise(
        id=name,
        text=row["promise"],
        source=pages[page] + mark + heading,
        field=field,
        value=value,
        sender=taken(_SENDERS),
        frontend=taken(frozenset({*Frontend, "healthz", "livez"})),
        family=taken(frozenset(Family)),
        protocol=taken(frozenset(Transport)),
        mode=taken(frozenset(Mode)),
        state=", ".join(parts),
        result=PromisedResult(result),
    )


def _promise_id(name: str) -> str:
    """The id, if a row has it; refused with the nearest one otherwise."""
    if name not in promises():
        raise refused(
            f"{shown(name)} is no promise of Kubernetes",
            allowed="`proxylab semantics` lists them",
            word=name,
            known=promises(),
        )
    return name


Proves = Annotated[
    tuple[Annotated[str, Check(_promise_id)], ...],
    Key(
        "The promises of Kubernetes that this expectation shows, by their ids in proxylab semantics. It is a note: the "
        "lab judges nothing by it.",
        [["externalTrafficPolicy=Local/nodePort/outside/remote-endpoint/drop"]],
    ),
]
"""The type of a key ``proves``."""
