"""Runs nft(8) in a node. Its texts come from engines, and ``rules.nft_listing`` reads its listings."""

from collections.abc import Callable

from proxylab.addresses import Family
from proxylab.errors import CapabilityError, EngineError
from proxylab.kernel.netfilter.iptables_tool import is_too_long, no_room, output_of
from proxylab.kernel.sandbox.launcher import Completed, Launcher
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.timing import Deadline

_COMMAND_SECONDS = 60.0
_LIST_ATTEMPTS = 2  # another program may make the table between the two commands


class NftRefusedError(Exception):
    """nft refused a text and loaded nothing of it. The message is nft's output."""


class NftTool:
    """Loads texts into the nftables of one node, and reads them back by the machine's nft.

    ``program`` says at each load by which program.
    """

    def __init__(
        self, launcher: Launcher, netns: NetNs, netns_name: str, program: Callable[[], str] = lambda: "nft"
    ) -> None:
        self._launcher = launcher
        self._netns = netns
        self._netns_name = netns_name
        self._program = program
        self._hold_input = False  # most texts fit, and holding input back costs a process

    def require(self) -> None:
        """Raise ``CapabilityError`` where the machine has no nft."""
        if self._launcher.path_of("nft") is None:
            raise CapabilityError("nft, with which kube-proxy programs the mode nftables", "apt-get install nftables")

    async def load(self, text: str) -> None:
        """Load a text as a whole.

        Raises:
            CapabilityError: the machine has no nft, or the text does not fit into the largest transaction that this
                machine allows.
            NftRefusedError: nft refused the text.
        """
        self.require()
        done = await self._run("--file", "-", program=self._program(), stdin=text)
        if is_too_long(done) and not self._hold_input:
            self._hold_input = True
            done = await self._run("--file", "-", program=self._program(), stdin=text)
        if is_too_long(done):
            raise no_room(text)
        if done.status != 0:
            raise NftRefusedError(output_of(done))

    async def list_table(self, family: Family, table: str, *, handles: bool = False) -> str:
        """The table as nft prints it, with ``handles`` of its rules or without; empty if there is no such table.

        Raises:
            EngineError: nft failed.
        """
        kind = "ip" if family is Family.IPV4 else "ip6"
        argv = (*(("--handle",) if handles else ()), "list", "table", kind, table)
        for _ in range(_LIST_ATTEMPTS):
            done = await self._run(*argv)
            if done.status == 0:
                return done.stdout.decode(errors="replace")
            tables = await self._run("list", "tables", kind)
            if tables.status == 0 and f"table {kind} {table}\n" not in tables.stdout.decode(errors="replace"):
                return ""
        output = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise EngineError(self._netns.name, f"nft list table {kind} {table} failed", output)

    async def list_all(self) -> str | None:
        """All tables as nft prints them, with handles and numeric priorities; ``None`` where the machine has no nft.

        Raises:
            EngineError: nft failed.
        """
        if self._launcher.path_of("nft") is None:
            return None
        done = await self._run("--handle", "--numeric-priority", "list", "ruleset")
        if done.status != 0:
            output = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise EngineError(self._netns.name, "nft list ruleset failed", output)
        return done.stdout.decode(errors="replace")

    async def _run(self, *arguments: str, program: str = "nft", stdin: str = "") -> Completed:
        argv, deadline = (program, *arguments), Deadline.after(_COMMAND_SECONDS)
        return await self._launcher.run(
            self._netns,
            argv,
            netns_name=self._netns_name,
            stdin=stdin.encode(),
            fed=bool(stdin) and self._hold_input,
            deadline=deadline,
        )
