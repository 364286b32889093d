"""nft(8) in a node.

Owns: ``NftTool``.
Must not: write a rule.
"""

from lab.errors import CapabilityError, EngineError
from lab.ip import Family
from lab.kernel.launcher import Completed, Launcher
from lab.kernel.netns import NetNs
from lab.timing import Deadline

__all__ = ["NftTool"]

_SECONDS = 60.0


class NftTool:
    """Reads the nftables of one node."""

    def __init__(self, launcher: Launcher, netns: NetNs, place: str) -> None:
        self._launcher = launcher
        self._netns = netns
        self._place = place

    async def version(self) -> str:
        """What nft says of itself. Raises ``CapabilityError`` where there is none."""
        done = await self._run("--version")
        if done.status != 0:
            raise CapabilityError("nft, by which kube-proxy programs mode nftables", "apt-get install nftables")
        return done.stdout.decode(errors="replace").strip()

    async def list_table(self, family: Family, table: str, *, handles: bool = False) -> str:
        """The table as nft prints it, with the handles of its rules if they are asked for; nothing if there is none.

        Raises:
            EngineError: nft failed.
        """
        kind = "ip" if family is Family.IPV4 else "ip6"
        tables = await self._run("list", "tables", kind)
        if f"table {kind} {table}\n" not in tables.stdout.decode(errors="replace"):
            return ""
        done = await self._run(*(("--handle",) if handles else ()), "list", "table", kind, table)
        if done.status != 0:
            words = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise EngineError(self._netns.name, f"nft list table {kind} {table} failed", words)
        return done.stdout.decode(errors="replace")

    async def _run(self, *words: str) -> Completed:
        argv = ("nft", *words)
        return await self._launcher.run(self._netns, argv, place=self._place, deadline=Deadline.after(_SECONDS))
