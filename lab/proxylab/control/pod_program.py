"""A real program of the cluster in a pod's namespace: its process, its log, and its failures in its own words."""

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from proxylab.errors import ProgramError
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.running import Running, how_it_ended
from proxylab.text import shortened
from proxylab.timing import Deadline, DeadlineExceededError, wait_until_seen, waiting_for

_LOG_LINES: Final = 1000
_LAST_LINES: Final = 20
_STOP_SECONDS: Final = 5.0
_WRITE_SECONDS: Final = 10.0


class PodProgram:
    """A program in a pod.

    Args:
        name: what messages call it, such as ``CoreDNS in pod coredns``.
        netns_name: the name by which the launcher knows that.
        counted: words whose lines ``count`` counts.
        told: called with each line of its log.
    """

    def __init__(
        self,
        name: str,
        netns: NetNs,
        netns_name: str,
        launcher: Launcher,
        counted: Sequence[str] = (),
        told: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self.netns = netns
        self._netns_name = netns_name
        self._launcher = launcher
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._counted = tuple(counted)
        self._told = told
        self._numbers = Counter[str]()
        self._running: Running | None = None

    async def start(self, argv: Sequence[str], files: Mapping[str, str]) -> None:
        """Start it, with files in its private /run."""
        self._running = await self._launcher.start(
            self.netns, argv, netns_name=self._netns_name, heard=self._hear, files=files
        )

    def _hear(self, line: str) -> None:
        self._log.append(shortened(line))
        if self._told is not None:
            self._told(shortened(line))
        for words in self._counted:
            self._numbers[words] += words in line

    def count(self, words: str) -> int:
        """How many lines with one of the ``counted`` words the log has had."""
        return self._numbers[words]

    def signal(self, number: int) -> None:
        """Send a signal to its process group, unless it has ended."""
        if self._running is not None and not self._running.has_ended:
            self._running.signal(number)

    async def write(self, path: str, text: str) -> None:
        """Write a file in its private /run."""
        await self.output_of(("tee", path), Deadline.after(_WRITE_SECONDS), text)

    async def output_of(self, argv: Sequence[str], deadline: Deadline, stdin: str = "") -> str:
        """What another command prints in the pod. Raises ``ProgramError`` where that fails."""
        done = await self._launcher.run(
            self.netns, argv, netns_name=self._netns_name, stdin=stdin.encode(), deadline=deadline
        )
        if done.status != 0:
            what = f"{argv[0]} in its pod ended with status {done.status}"
            raise ProgramError(self.name, what, done.stderr.decode(errors="replace").strip())
        return done.stdout.decode()

    async def wait(self, condition: Callable[[], Awaitable[bool]], deadline: Deadline, why: str) -> None:
        """Wait for a condition while the program runs. Raises ``ProgramError``."""

        async def look() -> bool:
            return self._running is None or self._running.has_ended or await condition()

        try:
            with waiting_for(f"{self.name}: {why}"):
                await wait_until_seen(look, deadline, why)
        except DeadlineExceededError as late:
            raise ProgramError(self.name, str(late), self._last_lines()) from late
        await self.raise_if_ended()

    async def raise_if_ended(self) -> None:
        """Raise ``ProgramError`` if it has ended."""
        if self._running is not None and self._running.has_ended:
            await self._running.drained()
            raise ProgramError(self.name, how_it_ended(await self._running.status), self._last_lines())

    async def stop(self) -> None:
        """End it."""
        if self._running is not None:
            await self._running.stop(Deadline.after(_STOP_SECONDS))

    def _last_lines(self) -> str:
        return "\n".join(list(self._log)[-_LAST_LINES:])
