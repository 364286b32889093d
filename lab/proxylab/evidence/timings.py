"""The frozen records of what a proxy and connections took, in seconds; ``server.timed_changes`` fills them in."""

from proxylab.encoding import Record


class SyncTimes(Record, frozen=True):
    """How many syncs an engine has made, and how long they took together, by its own metrics. In seconds."""

    syncs: int = 0
    seconds: float = 0.0

    def since(self, before: "SyncTimes") -> "SyncTimes":
        """Those that came after ``before``."""
        return SyncTimes(self.syncs - before.syncs, self.seconds - before.seconds)

    @property
    def of_one(self) -> float | None:
        """The mean time of a sync; ``None`` without one."""
        return self.seconds / self.syncs if self.syncs > 0 else None


class ChangeTimes(Record, frozen=True, kw_only=True):
    """How soon a change was programmed, in seconds from the change in the API, or from the start of the engine.

    Attributes:
        met: when the first packet left that went by the new rules; ``None`` where nothing was dialled.
        settled: when the lab saw that the engine had programmed it.
        full: the full syncs meanwhile; modes whose every sync is full do not tell them apart.
        syncs: all syncs meanwhile.
    """

    met: float | None
    settled: float
    full: SyncTimes = SyncTimes()
    syncs: SyncTimes = SyncTimes()


class StartTimes(Record, frozen=True):
    """How soon a started engine had programmed the cluster, and the memory that it and its rules took, in bytes.

    The memory of an engine in the lab process is what that has grown by.
    """

    times: ChangeTimes
    engine_bytes: int
    kernel_bytes: int


class ConnectionTimes(Record, frozen=True):
    """What connections took, in seconds, one after the other.

    Attributes:
        first: of each: from dialling to the first data at the endpoint.
        established: of each: a byte to the endpoint and back.
        seconds: all of them, with their ends.
    """

    first: tuple[float, ...]
    established: tuple[float, ...]
    seconds: float
