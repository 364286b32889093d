"""Loading rules into a node, and reading them back.

Owns: the choice among the iptables variants of this machine, and ``IptablesTool``, which runs one of them in a node.
Must not: write a rule of its own; texts come from an engine.

iptables comes in two variants that do not see each other's rules: ``legacy`` (x_tables, the kernel's ip_tables) and
``nft`` (the same rules translated to nf_tables). Which of them works depends on what the kernel can do. Nobody in a
user namespace can load a module, but the kernel itself loads some when they are asked for by name (``request_module``),
as far as the machine lets it. So each is tried, in an empty namespace, with every table, match and target that the
engine uses.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from proxylab.addresses import Family
from proxylab.errors import CapabilityError, EngineError
from proxylab.kernel.netfilter.nftables import delete_table
from proxylab.kernel.sandbox.launcher import Completed, Launcher
from proxylab.kernel.sandbox.netns import NetNs, make_netns
from proxylab.plan.masquerade import masquerade_text, without_masquerade
from proxylab.plan.model import Masquerade
from proxylab.timing import Deadline, together

__all__ = ["IptablesTool", "IptablesVariant", "RestoreRefusedError", "choose_iptables"]

_VARIANTS: Final = ("legacy", "nft")
_TABLES: Final = ("mangle", "filter", "nat")  # those in which kube-proxy has chains
_SECONDS: Final = 60.0

# Each table in which kube-proxy has chains (in mangle just its canary), and one rule for each extension that its rules
# need; the names are those of iptables-extensions(8).
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
-A TRIAL -m tcp -p tcp -j DNAT --to-destination 192.0.2.1:1
-A TRIAL -j MASQUERADE --random-fully
COMMIT
"""


class RestoreRefusedError(Exception):
    """iptables-restore refused a text. ``output`` is what it said; the refused table is as it was before."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


@dataclass(frozen=True, slots=True)
class IptablesVariant:
    """One of the machine's iptables: ``name`` is ``legacy`` or ``nft``, ``version`` as it prints it itself."""

    name: str
    version: str

    def command(self, family: Family, verb: str) -> str:
        """The program for ``verb`` (``restore`` or ``save``) of one family; without a verb, iptables itself."""
        return f"{'iptables' if family is Family.IPV4 else 'ip6tables'}-{self.name}{verb and '-'}{verb}"


async def choose_iptables(launcher: Launcher, variants: Sequence[str] = _VARIANTS) -> IptablesVariant:
    """The first of ``variants`` that can load every kind of rule kube-proxy writes.

    Legacy comes first: it loads a few services in 3 ms, where the nft variant takes ten times that.

    Raises:
        CapabilityError: none works; says what each of them answered.
    """
    scratch = make_netns("iptables-trial")
    netns_name = "iptables-trial"
    answers: list[str] = []
    try:
        for name in variants:
            variant = IptablesVariant(name, "")
            restore = variant.command(Family.IPV4, "restore")
            done = await _run(launcher, scratch, netns_name, (restore, "--noflush"), _TRIAL.encode())
            if done.status == 0:
                version = await _run(launcher, scratch, netns_name, (restore, "--version"), b"")
                return IptablesVariant(name, version.stdout.decode(errors="replace").strip())
            answers.append(f"{restore}: {_words(done)}")
    finally:
        launcher.forget([netns_name])
        scratch.close()
    raise CapabilityError(
        "an iptables that works in a network namespace (" + "; ".join(answers) + ")",
        "install iptables ('apt-get install iptables'), or load its kernel modules as root: "
        "'modprobe -a ip_tables iptable_nat iptable_filter iptable_mangle xt_conntrack xt_comment xt_mark "
        "xt_MASQUERADE xt_nat xt_statistic xt_recent xt_addrtype ipt_REJECT nf_tables nft_compat'",
    )


class IptablesTool:
    """Loads and reads the rules of one node."""

    def __init__(self, launcher: Launcher, netns: NetNs, netns_name: str, variant: IptablesVariant) -> None:
        self._launcher = launcher
        self._netns = netns
        self._netns_name = netns_name
        self.variant = variant
        self._fed = False  # most texts fit, and holding input back costs a process

    async def load(self, family: Family, text: str) -> None:
        """Load ``text``. Each table is replaced as a whole at its COMMIT; a packet never sees half of one.

        Raises:
            RestoreRefusedError: a table was refused, with the words of iptables-restore; tables before it are loaded.
            CapabilityError: a table does not fit into one transaction, with all the room that this machine allows.
        """
        argv = (self.variant.command(family, "restore"), "--wait", "5", "--noflush", "--counters")
        done = await self._restore(argv, text)
        if _is_too_long(done) and not self._fed:
            # Nothing of the table was loaded, and tables before it are as the text says: it may be said again.
            self._fed = True
            done = await self._restore(argv, text)
        if _is_too_long(done):
            raise CapabilityError(
                f"room for {len(text) // 1024} KiB of rules in one nf_tables transaction (net.core.wmem_max)",
                "run as root, or 'sudo sysctl -w net.core.wmem_max=16777216', or load rules with --iptables legacy",
            )
        if done.status != 0:
            raise RestoreRefusedError(_words(done))

    async def _restore(self, argv: Sequence[str], text: str) -> Completed:
        deadline = Deadline.after(_SECONDS)
        return await self._launcher.run(
            self._netns, argv, netns_name=self._netns_name, stdin=text.encode(), fed=self._fed, deadline=deadline
        )

    async def masquerade(self, masquerade: Masquerade) -> None:
        """Load what the wire itself masquerades.

        Raises:
            CapabilityError: this machine's iptables has not what that needs.
        """
        try:
            await self.load(masquerade.family, masquerade_text(masquerade))
        except RestoreRefusedError as refused:
            raise CapabilityError(
                f"{masquerade.family} masquerading ({refused.output})",
                "load the kernel's modules as root ('modprobe -a iptable_nat ip6table_nat xt_MASQUERADE'), or take "
                "outboundMasquerade out of the scenario",
            ) from refused

    async def flush(self, family: Family) -> None:
        """Take away every rule and chain of the tables in which kube-proxy has some, as ``iptables -F`` and ``-X`` do.

        Raises:
            EngineError: iptables-restore failed.
        """
        text = "".join(f"*{table}\nCOMMIT\n" for table in _TABLES)
        done = await self._restore((self.variant.command(family, "restore"), "--wait", "5"), text)
        if done.status != 0:
            raise EngineError(self._netns.name, f"{' '.join(done.argv)} failed", _words(done))

    async def has_chain(self, family: Family, table: str, chain: str) -> bool:
        """Whether the table has that chain."""
        argv = (self.variant.command(family, ""), "--wait", "5", "--table", table, "--numeric", "--list", chain)
        return (await _run(self._launcher, self._netns, self._netns_name, argv, b"")).status == 0

    def drop_nft_table(self, family: Family, name: str) -> bool:
        """Delete the nftables table of that name; whether there was one. Raises ``OSError``."""
        return delete_table(self._netns, family, name)

    async def save(self, family: Family) -> str:
        """The engine's rules of mangle, filter and nat with their counters, as iptables-save prints them.

        The wire's own are left out: no engine has made them, and none may take them for what another one left.

        Raises:
            EngineError: iptables-save failed.
        """
        return without_masquerade(await self.save_all(family))

    async def save_all(self, family: Family) -> str:
        """The same with the wire's own rules, for whoever counts what packets meet; a line on top names the command.

        Asked for table by table: which tables there are, iptables-legacy-save reads from /proc/net/ip_tables_names, and
        that file is the machine's root's; to an ordinary user it would print nothing at all.

        Raises:
            EngineError: iptables-save failed.
        """
        command = self.variant.command(family, "save")
        answers = await together(
            _run(self._launcher, self._netns, self._netns_name, (command, "--counters", "--table", table), b"")
            for table in _TABLES
        )
        for done in answers:
            if done.status != 0:
                raise EngineError(self._netns.name, f"{' '.join(done.argv)} failed", _words(done))
        saved = (_without_comments(done.stdout.decode()) for done in answers)
        return "".join([f"# {command} --counters\n", *saved])

    async def save_legacy(self, family: Family, table: str) -> str:
        """One table of legacy iptables with counters, whichever variant the engine uses; empty without that tool."""
        command = IptablesVariant("legacy", "").command(family, "save")
        if self._launcher.path_of(command) is None:
            return ""
        argv = (command, "--counters", "--table", table)
        return (await _run(self._launcher, self._netns, self._netns_name, argv, b"")).stdout.decode(errors="replace")


def _without_comments(text: str) -> str:
    """Without the lines that tell the program's version and the hour: two texts of the same rules are the same text."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


async def _run(launcher: Launcher, netns: NetNs, netns_name: str, argv: Sequence[str], stdin: bytes) -> Completed:
    return await launcher.run(netns, argv, netns_name=netns_name, stdin=stdin, deadline=Deadline.after(_SECONDS))


def _is_too_long(done: Completed) -> bool:
    """Whether a transaction did not fit into the send buffer (EMSGSIZE, in the words of strerror(3))."""
    return done.status != 0 and os.strerror(errno.EMSGSIZE).encode() in done.stderr


def _words(done: Completed) -> str:
    """What a failed command said, or at least how it ended."""
    said = (done.stderr or done.stdout).decode(errors="replace").strip()
    return said or f"exit status {done.status}"
