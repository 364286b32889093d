"""The messages about a detached lab, and those of clients that connect to its control socket.

A ``Feed`` gets several answers, the last of which is ``Ended``; meanwhile the client may send ``Signal``. Every other
request gets one answer, as in ``proxylab.protocol.messages``.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import field

from proxylab.binary_identity import BinaryIdentity
from proxylab.cluster.objects import KubeObject
from proxylab.encoding import Record, TaggedRecord
from proxylab.engines.protocol import EngineChoice
from proxylab.protocol.messages import Built, Failed, LabRequest, Request
from proxylab.scenario.model import Scenario


class LabRecord(Record, frozen=True, kw_only=True):
    """What a later client needs to go on with a standing lab. The lab process only stores it.

    Attributes:
        scenario: that it was built for, or last brought to.
        source: the scenario's text, if it is in no file.
        engine: as the client chose it.
        seed: of ports and payloads.
        built: the answer to its ``Build``.
        made: how many steps of the scenario have been made.
        applied: texts of manifests that were applied to the scenario since, by their names.
        directory: its client's, to which the file's name is relative.
        began: when it was detached, in seconds since the epoch.
    """

    name: str
    scenario: Scenario
    source: str = ""
    engine: EngineChoice = field(default_factory=EngineChoice)
    seed: int = 0
    built: Built
    made: int = 0
    applied: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    began: float = 0.0


class Greeted(Record, frozen=True, kw_only=True):
    """A standing lab, in short.

    ``binary`` runs as the proxy; it is ``None`` for an embedded engine. Times are in seconds; ``left`` is ``None`` for
    one that ends with its first client. ``trouble`` says which proxy's process has ended, or is empty.
    """

    name: str
    file: str
    case: str
    engine: str
    binary: BinaryIdentity | None = None
    age: float
    left: float | None
    busy: bool
    trouble: str = ""


class ObjectList(Record, frozen=True):
    """Objects of the cluster, by kind, namespace and name, and the revision of each."""

    objects: tuple[KubeObject, ...]
    revisions: tuple[int, ...]


class Detach(Request[None], frozen=True):
    """Open the control socket to other clients.

    The lab then outlives the client that sends it by so many seconds; with ``None`` it ends with that client.
    """

    record: LabRecord
    seconds: float | None


class Greet(Request[Greeted], frozen=True):
    """Get the state of a standing lab."""


class Remember(Request[LabRecord], frozen=True):
    """Get the record of a standing lab, after replacing it by ``record`` if given."""

    record: LabRecord | None = None


class ListObjects(Request[ObjectList], frozen=True):
    """List the objects that the API server shows."""


class End(Request[None], frozen=True):
    """End a standing lab. The answer comes, and then the lab process ends."""


class Attach(TaggedRecord, frozen=True, kw_only=True):
    """Run a command in a node, pod or host on the three descriptors that come along. A feed.

    Attributes:
        netns_name: the node, pod or host.
        terminal: the descriptors are a terminal, which becomes the command's controlling terminal.
        environment: variables to add to the usual ones.
    """

    netns_name: str
    argv: tuple[str, ...]
    terminal: bool = False
    directory: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)


class Log(TaggedRecord, frozen=True):
    """Get the log of a node's engine, and with ``follow`` what it logs from then on. A feed of ``Lines``."""

    node: str
    follow: bool = False


ANY_DEVICE: Final = "any"
"""What stands for every device of a namespace in ``Listen``, as in tcpdump."""


class Listen(TaggedRecord, frozen=True, kw_only=True):
    """Capture at devices. A feed of ``Frames``, the first of which has the taps: the capture has begun.

    ``devices`` are namespaces with a device each; ``any`` stands for all devices of the namespace. ``interest`` is a
    classic BPF program, an array of ``struct sock_filter`` as hexadecimals, or empty. It ends by a signal, after
    ``seconds``, or after ``count`` frames. With ``in_words``, each frame comes as a line of text, too.
    """

    devices: tuple[tuple[str, str], ...]
    interest: str = ""
    seconds: float | None = None
    count: int | None = None
    in_words: bool = False


class Signal(TaggedRecord, frozen=True):
    """Pass a signal to the running command, or end another feed. No answer."""

    number: int


class Lines(TaggedRecord, frozen=True):
    """New lines of an engine's log."""

    lines: tuple[str, ...]


class CapturedFrame(Record, frozen=True):
    """A frame that crossed a device: when, in nanoseconds since the epoch, which way, and its bytes as hexadecimals.

    ``words`` describe it, if the client asked for them: only the lab process has scapy. ``tap`` is the index of the
    device in the first ``Frames``.
    """

    at: int
    outgoing: bool
    data: str
    words: str = ""
    tap: int = 0


class Frames(TaggedRecord, frozen=True):
    """The frames that crossed the devices since the last ``Frames``; ``lost`` is how many more found no room.

    The first has no frames, but the ``taps``: namespaces with a device each.
    """

    frames: tuple[CapturedFrame, ...] = ()
    lost: int = 0
    taps: tuple[tuple[str, str], ...] = ()


class Ended(TaggedRecord, frozen=True):
    """A feed is over. ``status`` is a command's exit code, or minus the number of the signal that ended it."""

    status: int = 0


class Kubeconfig(TaggedRecord, frozen=True):
    """Get a kubeconfig of the lab's real control plane, as JSON in one line. A feed of ``Lines``.

    ``name`` is that of its context. The lab serves the API on a listening socket that comes along.
    """

    name: str


Feed = Attach | Log | Listen | Kubeconfig

AnyRequest = LabRequest | Detach | Greet | Remember | ListObjects | End | Feed | Signal
"""All requests of a client."""

FeedAnswer = Lines | Frames | Ended | Failed
"""One of the answers to a feed."""
