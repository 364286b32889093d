"""A proxy process of mode userspace in memory."""

from collections.abc import Collection, Mapping

from proxylab.engines.embedded.userspace.writer import Answered, ProcessEndedError, ProcessPort


class MemoryProcess:
    """A proxy process that listens on made-up ports. ``orders`` holds what it was told, ``failing`` what fails."""

    def __init__(self) -> None:
        self.runs = False
        self.orders: list[tuple[dict[str, ProcessPort], list[str]]] = []
        self.failing: dict[str, str] = {}
        self.dies = False
        self._ports: dict[str, int] = {}
        self._next = 40001

    async def order(self, serve: Mapping[str, ProcessPort], close: Collection[str]) -> Answered:
        if self.dies:
            self.runs, self.dies = False, False
            self._ports.clear()
            raise ProcessEndedError("out of memory")
        self.runs = True
        self.orders.append((dict(serve), list(close)))
        for key in close:
            del self._ports[key]
        for key in serve:
            if key not in self._ports and key not in self.failing:
                self._ports[key] = self._next
                self._next += 1
        return Answered(
            len(self.orders), dict(self._ports), {key: self.failing[key] for key in serve if key in self.failing}
        )
