"""The options that choose engines, the same for every verb (``proxylab.binaries`` obtains the binaries)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from proxylab.binaries.choose import read_gates, upstream_for
from proxylab.binary_identity import identity_lines
from proxylab.cli.standard_streams import echo
from proxylab.engines.engine_names import ENGINES, IPTABLES_VARIANTS, read_engine, where_of
from proxylab.engines.protocol import EngineChoice
from proxylab.guest.kernels import find_kernel
from proxylab.scenario.words import HOST

Command = TypeVar("Command", bound=Callable[..., Any])


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


def _complete_engines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Engines, for a shell."""
    return [CompletionItem(name) for name in ENGINES if name.startswith(incomplete)]


_NAMES: Final = f"{', '.join(ENGINES)}, or kube-proxy@VERSION/MODE"

_ONE: Final = click.option(
    "--engine",
    callback=_engine,
    shell_complete=_complete_engines,
    metavar="NAME",
    default=ENGINES[0],
    show_default=True,
    help=f"The engine to run in every node: {_NAMES}.",
)

_SEVERAL: Final = click.option(
    "--engine",
    "engines",
    callback=_engines,
    shell_complete=_complete_engines,
    metavar="NAME",
    multiple=True,
    help=f"An engine to run in every node; may be repeated: {_NAMES}.  [default: {ENGINES[0]}]",
)

_OPTIONS: Final = (
    click.option(
        "--kube-proxy",
        metavar="WHERE",
        default="",
        envvar="LAB_KUBE_PROXY",
        help="The source of kube-proxy: a file, a kubernetes checkout, image:REFERENCE, release:VERSION or "
        "module:VERSION; by default what `proxylab engines` lists. It applies to engines that name no version.",
    ),
    click.option("--feature-gates", metavar="NAME=BOOL,…", default="", help="Feature gates for kube-proxy."),
    click.option(
        "--kube-proxy-flag",
        "flags",
        metavar="FLAG",
        multiple=True,
        help="One more flag for kube-proxy, such as --v=4; may be repeated.",
    ),
    click.option(
        "--iptables",
        type=click.Choice(IPTABLES_VARIANTS),
        help="The iptables variant that loads the rules; by default the first that works on this machine.",
    ),
    click.option(
        "--name-server",
        metavar="NAME",
        default="",
        envvar="LAB_NAME_SERVER",
        help="The name server of labs whose scenario names none: embedded, coredns, coredns@VERSION, or the path of a "
        "coredns.",
    ),
)

_WORDS_OF_KERNELS: Final = "host, uml, debian:VERSION, or the path of one (see `proxylab kernels`)"

_KERNEL: Final = click.option(
    "--kernel",
    metavar="KERNEL",
    default=HOST,
    show_default=True,
    help=f"The kernel of the labs: {_WORDS_OF_KERNELS}.",
)

_KERNELS: Final = click.option(
    "--kernel",
    "kernels",
    callback=_each_once,
    metavar="KERNEL",
    multiple=True,
    default=(HOST,),
    help=f"A kernel of the labs; may be repeated: {_WORDS_OF_KERNELS}.  [default: {HOST}]",
)


def engine_options(command: Command) -> Command:
    """Add the option ``engine``, and the options that the command passes on to ``choice_of``."""
    return _given((_ONE, *_OPTIONS, _KERNEL), command)


def engines_options(command: Command) -> Command:
    """Add the options ``engines`` and ``kernels``, and those that the command passes on to ``choices_of``."""
    return _given((_SEVERAL, *_OPTIONS, _KERNELS), command)


def given_options(command: Command) -> Command:
    """Add only the options that the command passes on to ``choices_of``: it names the engines itself."""
    return _given((*_OPTIONS, _KERNEL), command)


def _given(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def choices_of(
    engines: Sequence[str],
    kernels: Sequence[str] = (),
    *,
    feature_gates: str = "",
    flags: tuple[str, ...] = (),
    kube_proxy: str = "",
    **others: Any,
) -> dict[str, EngineChoice]:
    """``choice_of`` for each engine. Only kube-proxy engines get the options for kube-proxy.

    Raises:
        click.UsageError: no engine takes the options.
        CapabilityError: no source has the binary, or there is no such kernel.
    """
    for kernel in kernels:
        find_kernel(kernel)
    upstream = [engine for engine in engines if read_engine(engine).is_upstream] or engines
    of_upstream: dict[str, Any] = {"feature_gates": feature_gates, "flags": flags}
    return {
        engine: choice_of(
            engine,
            kube_proxy=where_of(engine, engines, kube_proxy),
            **(of_upstream if engine in upstream else {}),
            **others,
        )
        for engine in engines
    }


def announced_choice(engine: str, **given: Any) -> EngineChoice:
    """``choice_of``, for verbs whose output does not name the binary: standard error gets a line that does."""
    choice = choice_of(engine, **given)
    for line in identity_lines([(engine, choice.binary)]):
        echo(line, err=True)
    return choice


def choice_of(
    engine: str,
    *,
    kube_proxy: str = "",
    feature_gates: str = "",
    flags: tuple[str, ...] = (),
    iptables: str | None = None,
    kernel: str = HOST,
    name_server: str = "",
) -> EngineChoice:
    """The engine with its options; obtains a binary if the engine needs one.

    Raises:
        click.UsageError: the options contradict each other.
        CapabilityError: no source has the binary, or there is no such kernel.
    """
    find_kernel(kernel)
    name = read_engine(engine)
    if not name.is_upstream:
        for option, given in (("--feature-gates", feature_gates), ("--kube-proxy-flag", flags)):
            if given:
                raise click.UsageError(
                    f"{option} is for kube-proxy, but --engine is {engine}; leave it out, or choose a kube-proxy"
                )
        return EngineChoice(engine, iptables=iptables or "", kernel=kernel, name_server=name_server)

    try:
        gates = read_gates(feature_gates)
    except ValueError as error:
        raise click.UsageError(f"--feature-gates: {error}") from None
    upstream = upstream_for(engine, kube_proxy, partial(echo, err=True), flags=flags, gates=gates)
    return EngineChoice(engine, iptables=iptables or "", upstream=upstream, kernel=kernel, name_server=name_server)
