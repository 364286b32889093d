"""A real program of the cluster in a pod's namespace: its process, its log, and its failures in its own words."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from proxylab.errors import ProgramError
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.running import Running
from proxylab.timing import Deadline, DeadlineExceededError, wait_until_seen

__all__ = ["PodProgram"]

_LOG_LINES: Final = 1000
_LAST_LINES: Final = 20
_STOP_SECONDS: Final = 5.0


class PodProgram:
    """A program in a pod. ``name`` is what messages call it, such as ``CoreDNS in coredns-0``."""

    def __init__(self, name: str, netns: NetNs, netns_name: str, launcher: Launcher) -> None:
        self.name = name
        self.netns = netns
        self._netns_name = netns_name
        self._launcher = launcher
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._running: Running | None = None

    async def start(self, argv: Sequence[str], files: Mapping[str, str]) -> None:
        """Start it, with files in its private /run."""
        self._running = await self._launcher.start(
            self.netns, argv, netns_name=self._netns_name, heard=self._log.append, files=files
        )

    async def wait(self, condition: Callable[[], Awaitable[bool]], deadline: Deadline, why: str) -> None:
        """Wait for a condition while the program runs.

        Raises:
            ProgramError: it has ended, or the condition did not hold in time.
        """

        async def look() -> bool:
            return self._running is None or self._running.has_ended or await condition()

        try:
            await wait_until_seen(look, deadline, why)
        except DeadlineExceededError as late:
            raise ProgramError(self.name, str(late), self._last_lines()) from late
        if self._running is not None and self._running.has_ended:
            await self._running.drained()
            what = f"ended with status {await self._running.status}"
            raise ProgramError(self.name, what, self._last_lines())

    async def stop(self) -> None:
        """End it."""
        if self._running is not None:
            await self._running.stop(Deadline.after(_STOP_SECONDS))

    def _last_lines(self) -> str:
        return "\n".join(list(self._log)[-_LAST_LINES:])
