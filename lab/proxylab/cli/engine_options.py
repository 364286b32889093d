"""The options that choose engines, the same for every verb (``proxylab.binaries`` obtains the binaries)."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import click
from click.shell_completion import CompletionItem
from msgspec import field
from msgspec.structs import replace

from proxylab.binary_identity import identity_lines
from proxylab.cli.options import Options, option
from proxylab.cli.standard_streams import echo
from proxylab.engines.engine_names import ENGINES, IPTABLES_VARIANTS, read_engine, where_of
from proxylab.engines.protocol import EngineChoice
from proxylab.guest.kernels import find_kernel
from proxylab.resource_limits import check_limits
from proxylab.scenario.nodes import PROGRAMS
from proxylab.scenario.words import HOST


def _engine(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The name of an engine. Raises ``BadParameter`` for any other word."""
    try:
        return str(read_engine(value))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _engines(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The names, each once; by default the first engine."""
    return tuple(dict.fromkeys(_engine(ctx, param, value) for value in values or ENGINES[:1]))


def _each_once(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The kernels, each once."""
    return tuple(dict.fromkeys(values))


def _programs(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> Mapping[str, str]:
    """The paths of programs by their names. Raises ``BadParameter`` for another name, or what is no program."""
    found: dict[str, str] = {}
    for value in values:
        name, _, path = value.partition("=")
        if name not in PROGRAMS or not path:
            raise click.BadParameter(f"{value!r} names no program; write nft=PATH or iptables=PATH", ctx, param)
        file = Path(path).absolute()
        if not file.is_file() or not os.access(file, os.X_OK):
            raise click.BadParameter(f"{path} is no program that can run here; name one that can", ctx, param)
        found[name] = str(file)
    return found


def _complete_engines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Engines, for a shell."""
    return [CompletionItem(name) for name in ENGINES if name.startswith(incomplete)]


_NAMES: Final = f"{', '.join(ENGINES)}, or kube-proxy@VERSION/MODE"

_WORDS_OF_KERNELS: Final = "host, uml, debian:VERSION, or the path of one (see `proxylab kernels`)"


class ProxyOptions(Options, frozen=True, kw_only=True):
    """What applies to engines of any name: where kube-proxy comes from, its flags, and what runs beside it."""

    kube_proxy: Annotated[
        str,
        option(
            "--kube-proxy",
            metavar="WHERE",
            default="",
            envvar="LAB_KUBE_PROXY",
            help="The source of kube-proxy: a file, a kubernetes checkout, image:REFERENCE, release:VERSION or "
            "module:VERSION; by default what `proxylab engines` lists. It applies to engines that name no version.",
        ),
    ] = ""
    feature_gates: Annotated[
        str, option("--feature-gates", metavar="NAME=BOOL,…", default="", help="Feature gates for kube-proxy.")
    ] = ""
    flags: Annotated[
        tuple[str, ...],
        option(
            "--kube-proxy-flag",
            metavar="FLAG",
            multiple=True,
            help="One more flag for kube-proxy, such as --v=4; may be repeated.",
        ),
    ] = ()
    iptables: Annotated[
        str | None,
        option(
            "--iptables",
            type=click.Choice(IPTABLES_VARIANTS),
            help="The iptables variant that loads the rules; by default the first that works on this machine.",
        ),
    ] = None
    programs: Annotated[
        Mapping[str, str],
        option(
            "--program",
            metavar="NAME=PATH",
            multiple=True,
            callback=_programs,
            help="Let proxies run the nft or the iptables at PATH, such as iptables=/opt/xtables-nft-multi, in nodes "
            "whose scenario names none; may be repeated.",
        ),
    ] = field(default_factory=dict)
    name_server: Annotated[
        str,
        option(
            "--name-server",
            metavar="NAME",
            default="",
            envvar="LAB_NAME_SERVER",
            help="The name server of labs whose scenario names none: embedded, coredns, coredns@VERSION, or the path "
            "of a coredns.",
        ),
    ] = ""
    control_plane: Annotated[
        str,
        option(
            "--control-plane",
            metavar="NAME",
            default="",
            envvar="LAB_CONTROL_PLANE",
            help="What serves the API of labs whose scenario names nothing: embedded, or a real kube-apiserver with "
            "etcd and controllers, for kubectl: real, real@VERSION, or the path of a control-plane.",
        ),
    ] = ""
    privileged: Annotated[
        bool,
        option(
            "--privileged",
            is_flag=True,
            help="Let proxies and commands in a lab of the machine's root do all that root may, such as change the "
            "machine's files and load BPF programs. It changes nothing for an ordinary user.",
        ),
    ] = False
    sync_seconds: Annotated[
        float | None,
        option(
            "--sync-seconds",
            type=click.FloatRange(min=1),
            metavar="N",
            help="How long an engine may take to program a change; by default 60 s, and 240 s in mode ipvs.",
        ),
    ] = None


_Kernel = Annotated[
    str,
    option(
        "--kernel",
        metavar="KERNEL",
        default=HOST,
        show_default=True,
        help=f"The kernel of the labs: {_WORDS_OF_KERNELS}.",
    ),
]


class EngineOptions(Options, frozen=True, kw_only=True):
    """One engine and one kernel."""

    engine: Annotated[
        str,
        option(
            "--engine",
            callback=_engine,
            shell_complete=_complete_engines,
            metavar="NAME",
            default=ENGINES[0],
            show_default=True,
            help=f"The engine to run in every node: {_NAMES}.",
        ),
    ]
    proxy: ProxyOptions
    kernel: _Kernel

    def choice(self) -> EngineChoice:
        """The engine with its options; see ``choice_of``."""
        return choice_of(self.engine, self.proxy, self.kernel)

    def announced_choice(self) -> EngineChoice:
        """The same, for verbs whose output does not name the binary: standard error gets a line that does."""
        choice = self.choice()
        for line in identity_lines([(self.engine, choice.binary)]):
            echo(line, err=True)
        return choice


class EnginesOptions(Options, frozen=True, kw_only=True):
    """Several engines and kernels."""

    engines: Annotated[
        tuple[str, ...],
        option(
            "--engine",
            callback=_engines,
            shell_complete=_complete_engines,
            metavar="NAME",
            multiple=True,
            help=f"An engine to run in every node; may be repeated: {_NAMES}.  [default: {ENGINES[0]}]",
        ),
    ]
    proxy: ProxyOptions
    kernels: Annotated[
        tuple[str, ...],
        option(
            "--kernel",
            callback=_each_once,
            metavar="KERNEL",
            multiple=True,
            default=(HOST,),
            help=f"A kernel of the labs; may be repeated: {_WORDS_OF_KERNELS}.  [default: {HOST}]",
        ),
    ]


class OtherOptions(Options, frozen=True, kw_only=True):
    """For a verb that names the engines by itself."""

    proxy: ProxyOptions
    kernel: _Kernel


def choices_of(
    engines: Sequence[str], given: ProxyOptions, kernels: Sequence[str] = (), kernel: str = HOST
) -> dict[str, EngineChoice]:
    """``choice_of`` for each engine. Only kube-proxy engines get the options for kube-proxy.

    Raises:
        click.UsageError: no engine takes the options.
        CapabilityError: no source has the binary, or there is no such kernel.
    """
    for each in kernels:
        find_kernel(each)
    upstream = [engine for engine in engines if read_engine(engine).is_upstream] or engines
    choices = {}
    for engine in engines:
        own = given if engine in upstream else replace(given, feature_gates="", flags=())
        where = where_of(engine, engines, given.kube_proxy)
        choices[engine] = choice_of(engine, replace(own, kube_proxy=where), kernel)
    return choices


def choice_of(engine: str, given: ProxyOptions = ProxyOptions(), kernel: str = HOST) -> EngineChoice:  # noqa: B008 - frozen
    """The engine with its options; obtains a binary if the engine needs one.

    It is for a lab, so limits that no lab fits into are told first: the programs that it starts would fail by them.

    Raises:
        click.UsageError: the options contradict each other.
        CapabilityError: no source has the binary, there is no such kernel, or a limit of this process is too low.
    """
    check_limits()
    find_kernel(kernel)
    common = EngineChoice(
        engine,
        iptables=given.iptables or "",
        programs=given.programs,
        kernel=kernel,
        name_server=given.name_server,
        control_plane=given.control_plane,
        privileged=given.privileged,
        sync_seconds=given.sync_seconds,
    )
    if not read_engine(engine).is_upstream:
        for spelt, value in (("--feature-gates", given.feature_gates), ("--kube-proxy-flag", given.flags)):
            if value:
                raise click.UsageError(
                    f"{spelt} is for kube-proxy, but --engine is {engine}; leave it out, or choose a kube-proxy"
                )
        return common
    from proxylab.binaries.choose import read_gates, upstream_for  # noqa: PLC0415 - only kube-proxy has a binary

    try:
        gates = read_gates(given.feature_gates)
    except ValueError as error:
        raise click.UsageError(f"--feature-gates: {error}") from None
    return replace(
        common,
        upstream=upstream_for(engine, given.kube_proxy, partial(echo, err=True), flags=given.flags, gates=gates),
    )
