"""Loads iptables rules into a node, and reads them back. The rules come from an engine.

iptables comes in two variants that do not see each other's rules: ``legacy`` (x_tables, the kernel's ip_tables) and
``nft`` (the same rules translated to nf_tables). Which of them works depends on the kernel. No process in a user
namespace can load a module, but the kernel itself loads some on first use (``request_module``), as far as the machine
allows. So ``choose_iptables`` tries each variant in an empty namespace, with every table, match and target that the
engine uses.
"""

import errno
import os
from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.errors import CapabilityError, EngineError
from proxylab.kernel.sandbox.iptables_links import FOLDER, links_to
from proxylab.kernel.sandbox.launcher import Completed, Launcher
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.running import how_it_ended
from proxylab.plan.masquerade import masquerade_text, without_masquerade
from proxylab.plan.model import Masquerade
from proxylab.timing import Deadline, together

_VARIANTS: Final = ("legacy", "nft")
_TABLES: Final = ("mangle", "filter", "nat")  # those in which kube-proxy has chains
_COMMAND_SECONDS: Final = 60.0

# Each table in which kube-proxy has chains (in mangle just its canary), and one rule for each extension that its rules
# need; the names are those of iptables-extensions(8). Without a rule a trial shows nothing: iptables-nft-restore loads
# an empty table where nf_tables has none for IP.
_TRIAL: Final = """\
*mangle
:TRIAL - [0:0]
COMMIT
*filter
:TRIAL - [0:0]
-A TRIAL -m conntrack --ctstate NEW -m comment --comment "trial" -j RETURN
-A TRIAL -m addrtype --dst-type LOCAL -m tcp -p tcp --dport 1 -j REJECT
-A TRIAL -m udp -p udp --dport 1 -j DROP
COMMIT
*nat
:TRIAL - [0:0]
-A TRIAL -m mark ! --mark 0x4000/0x4000 -j RETURN
-A TRIAL -j MARK --xor-mark 0x4000
-A TRIAL -m recent --name TRIAL --rcheck --seconds 1 --reap -j RETURN
-A TRIAL -m statistic --mode random --probability 0.5000000000 -j RETURN
-A TRIAL -m tcp -p tcp -j DNAT --to-destination {backend}
-A TRIAL -j MASQUERADE --random-fully
COMMIT
"""
_BACKENDS: Final = {Family.IPV4: "192.0.2.1:1", Family.IPV6: "[2001:db8::1]:1"}


class RestoreRefusedError(Exception):
    """iptables-restore refused a text. ``output`` is its output; the refused table is unchanged."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


class IptablesVariant(Struct, frozen=True):
    """One of the machine's iptables: ``name`` is ``legacy`` or ``nft``, ``version`` is what it prints."""

    name: str
    version: str

    def command(self, family: Family, verb: str) -> str:
        """The program for ``verb`` (``restore`` or ``save``) of one family; with an empty verb, iptables itself."""
        return f"{'iptables' if family is Family.IPV4 else 'ip6tables'}-{self.name}{verb and '-'}{verb}"


async def choose_iptables(
    launcher: Launcher, variants: Sequence[str] = (), family: Family = Family.IPV4
) -> IptablesVariant:
    """The first of ``variants`` (all, if none is named) that can load every rule kube-proxy writes for the family.

    Legacy comes first: it loads a few services in 3 ms, where the nft variant takes ten times that.

    Raises:
        CapabilityError: no variant works; the message has the first line that each prints.
    """
    scratch = launcher.make_netns("iptables-trial")
    netns_name = f"iptables-trial/{scratch.fd}"  # two trials at once, or the end of one would kill the other's commands
    failures: list[str] = []
    try:
        for name in variants or _VARIANTS:
            variant = IptablesVariant(name, "")
            restore = variant.command(family, "restore")
            trial = _TRIAL.format(backend=_BACKENDS[family]).encode()
            done = await _run(launcher, scratch, netns_name, (restore, "--noflush"), trial)
            if done.status == 0:
                version = await _run(launcher, scratch, netns_name, (restore, "--version"), b"")
                printed = version.stdout.decode(errors="replace").strip()
                return IptablesVariant(name, printed or f"{restore} --version {how_it_ended(version.status)}")
            failures.append(f"{restore}: {output_of(done).splitlines()[0]}")
    finally:
        launcher.forget([netns_name])
        scratch.close()
    raise CapabilityError(
        "an iptables that works in a network namespace (" + "; ".join(failures) + ")",
        "install iptables ('apt-get install iptables'), or load its kernel modules as root: "
        "'modprobe -a ip_tables iptable_nat iptable_filter iptable_mangle xt_conntrack xt_comment xt_mark "
        "xt_MASQUERADE xt_nat xt_statistic xt_recent xt_addrtype ipt_REJECT nf_tables nft_compat'",
    )


class IptablesTool:
    """Loads and reads the rules of one node.

    A ``program``, if one is named, loads and flushes them: it is each command of iptables, by its name. ``instead``
    says at each load what runs in place of a command.
    """

    def __init__(
        self,
        launcher: Launcher,
        netns: NetNs,
        netns_name: str,
        variant: IptablesVariant,
        program: str = "",
        instead: Callable[[str], str] = lambda command: command,
    ) -> None:
        self._launcher = launcher
        self._netns = netns
        self._netns_name = netns_name
        self.variant = variant
        self._instead = instead
        self._links = links_to(variant.name, {"iptables": program}) if program else {}
        self._hold_input = False  # most texts fit, and holding input back costs a process

    async def load(self, family: Family, text: str) -> None:
        """Load ``text``. Each table is replaced as a whole at its COMMIT; a packet never sees half of one.

        Raises:
            RestoreRefusedError: iptables-restore refused a table; tables before it are loaded.
            CapabilityError: a table does not fit into the largest transaction that this machine allows.
        """
        argv = (self.variant.command(family, "restore"), "--wait", "5", "--noflush", "--counters")
        done = await self._restore(argv, text)
        if is_too_long(done) and not self._hold_input:
            # Nothing of the table is loaded, and tables before it match the text, so a second load is safe.
            self._hold_input = True
            done = await self._restore(argv, text)
        if is_too_long(done):
            raise no_room(text)
        if done.status != 0:
            raise RestoreRefusedError(output_of(done))

    async def _restore(self, argv: Sequence[str], text: str) -> Completed:
        named = f"{FOLDER}/{argv[0]}"
        command = self._instead(named if named in self._links else argv[0])
        return await self._launcher.run(
            self._netns,
            (command, *argv[1:]),
            netns_name=self._netns_name,
            stdin=text.encode(),
            fed=self._hold_input,
            links=self._links,
            deadline=Deadline.after(_COMMAND_SECONDS),
        )

    async def masquerade(self, masquerade: Masquerade) -> None:
        """Load the masquerade rules of the network itself. Raises ``CapabilityError``."""
        try:
            await self.load(masquerade.family, masquerade_text(masquerade))
        except RestoreRefusedError as refused:
            raise CapabilityError(
                f"{masquerade.family} masquerading ({refused.output})",
                "load the kernel's modules as root ('modprobe -a iptable_nat ip6table_nat xt_MASQUERADE'), or remove "
                "outboundMasquerade from the scenario",
            ) from refused

    async def flush(self, family: Family) -> None:
        """Delete every rule and chain of the tables that kube-proxy uses, as ``iptables -F`` and ``-X`` do.

        Raises:
            EngineError: iptables-restore failed.
        """
        text = "".join(f"*{table}\nCOMMIT\n" for table in _TABLES)
        done = await self._restore((self.variant.command(family, "restore"), "--wait", "5"), text)
        if done.status != 0:
            raise EngineError(self._netns.name, f"{' '.join(done.argv)} failed", output_of(done))

    async def has_chain(self, family: Family, table: str, chain: str) -> bool:
        argv = (self.variant.command(family, ""), "--wait", "5", "--table", table, "--numeric", "--list", chain)
        return (await _run(self._launcher, self._netns, self._netns_name, argv, b"")).status == 0

    async def save(self, family: Family) -> str:
        """The engine's rules of mangle, filter and nat with their counters, as iptables-save prints them.

        The network's own rules are left out: no engine made them, and an engine must not take them for leftovers.
        Raises ``EngineError``.
        """
        return without_masquerade(await self.save_all(family))

    async def save_all(self, family: Family, tables: Collection[str] = _TABLES) -> str:
        """The same with the network's own rules, or some tables of it, for counters; the first line names the command.

        One command saves one table: without ``--table``, iptables-legacy-save reads /proc/net/ip_tables_names, which
        only the machine's root may read, and prints nothing for an ordinary user. Raises ``EngineError``.
        """
        command = self.variant.command(family, "save")
        outputs = await together(
            _run(self._launcher, self._netns, self._netns_name, (command, "--counters", "--table", table), b"")
            for table in tables
        )
        for done in outputs:
            if done.status != 0:
                raise EngineError(self._netns.name, f"{' '.join(done.argv)} failed", output_of(done))
        saved = (_without_comments(done.stdout.decode()) for done in outputs)
        return "".join([f"# {command} --counters\n", *saved])

    async def save_legacy(self, family: Family, table: str) -> str:
        """One table of legacy iptables with counters, also for an engine on nft; empty without iptables-legacy."""
        command = IptablesVariant("legacy", "").command(family, "save")
        if self._launcher.path_of(command) is None:
            return ""
        argv = (command, "--counters", "--table", table)
        return (await _run(self._launcher, self._netns, self._netns_name, argv, b"")).stdout.decode(errors="replace")


def _without_comments(text: str) -> str:
    """Drop the lines with the program's version and the time, so that equal rules give equal texts."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


async def _run(launcher: Launcher, netns: NetNs, netns_name: str, argv: Sequence[str], stdin: bytes) -> Completed:
    return await launcher.run(
        netns, argv, netns_name=netns_name, stdin=stdin, deadline=Deadline.after(_COMMAND_SECONDS)
    )


def no_room(text: str) -> CapabilityError:
    """The error for a text that fits into no transaction of this machine."""
    return CapabilityError(
        f"room for {len(text) // 1024} KiB of rules in one nf_tables transaction (net.core.wmem_max)",
        "run as root, or 'sudo sysctl -w net.core.wmem_max=16777216', or load rules of iptables with --iptables legacy",
    )


def is_too_long(done: Completed) -> bool:
    """Whether a transaction did not fit into the send buffer (EMSGSIZE, in the words of strerror(3))."""
    return done.status != 0 and os.strerror(errno.EMSGSIZE).encode() in done.stderr


def output_of(done: Completed) -> str:
    """The output of a failed command, or how it ended; behind its output, the signal that killed it, if one did."""
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    if done.status < 0:
        return f"{said}\n{done.argv[0].rpartition('/')[2]} {how_it_ended(done.status)}".strip()
    return said or f"it {how_it_ended(done.status)}"
