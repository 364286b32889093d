"""Which engines a command runs.

Owns: the options that say so, the same for every verb, and what they come to.
Must not: obtain a binary (``proxylab.binaries`` does), or run anything.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from proxylab.binaries.upstream import read_gates, upstream_for
from proxylab.engines.names import ENGINES, IPTABLES, read_engine, where_of
from proxylab.engines.protocol import EngineChoice

__all__ = ["choice_of", "choices_of", "engine_options", "engines_options", "given_options"]

Command = TypeVar("Command", bound=Callable[..., Any])


def _engine(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The name, if it is one."""
    try:
        return str(read_engine(value))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _engines(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The names, each once; the first engine there is where none was asked for."""
    return tuple(dict.fromkeys(_engine(ctx, param, value) for value in values or ENGINES[:1]))


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
        help="Where kube-proxy comes from: a file, a kubernetes checkout, image:REFERENCE, release:VERSION or "
        "module:VERSION; by default what `proxylab engines` lists. Among several engines it is for those that name no "
        "version.",
    ),
    click.option(
        "--feature-gates", metavar="NAME=BOOL,…", default="", help="Feature gates to be switched in kube-proxy."
    ),
    click.option(
        "--kube-proxy-flag",
        "flags",
        metavar="FLAG",
        multiple=True,
        help="One more flag for kube-proxy, such as --v=4; may be repeated.",
    ),
    click.option(
        "--iptables",
        type=click.Choice(IPTABLES),
        help="The variant of iptables that loads the rules; by default the first that works on this machine.",
    ),
)


def engine_options(command: Command) -> Command:
    """Give a command the options: ``engine``, and those that it passes on to ``choice_of``."""
    return _given((_ONE, *_OPTIONS), command)


def engines_options(command: Command) -> Command:
    """Give a command the options: ``engines``, and those that it passes on to ``choices_of``."""
    return _given((_SEVERAL, *_OPTIONS), command)


def given_options(command: Command) -> Command:
    """Give a command the options that say how engines run, which it names itself and passes on to ``choices_of``."""
    return _given(_OPTIONS, command)


def _given(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def choices_of(
    engines: Sequence[str],
    *,
    feature_gates: str = "",
    flags: tuple[str, ...] = (),
    kube_proxy: str = "",
    **others: Any,
) -> dict[str, EngineChoice]:
    """As ``choice_of`` for each of the engines; what is for kube-proxy only, the others of them are not told.

    Raises:
        click.UsageError: the options are for none of them.
        CapabilityError: there is no binary to be had.
    """
    upstream = [engine for engine in engines if read_engine(engine).is_upstream] or engines
    told: dict[str, Any] = {"feature_gates": feature_gates, "flags": flags}
    return {
        engine: choice_of(
            engine, kube_proxy=where_of(engine, engines, kube_proxy), **(told if engine in upstream else {}), **others
        )
        for engine in engines
    }


def choice_of(
    engine: str,
    *,
    kube_proxy: str = "",
    feature_gates: str = "",
    flags: tuple[str, ...] = (),
    iptables: str | None = None,
) -> EngineChoice:
    """What the options come to; a binary is obtained where the engine needs one.

    Raises:
        click.UsageError: they contradict each other.
        CapabilityError: there is no binary to be had.
    """
    name = read_engine(engine)
    if not name.is_upstream:
        for option, given in (("--feature-gates", feature_gates), ("--kube-proxy-flag", flags)):
            if given:
                raise click.UsageError(
                    f"{option} is for kube-proxy, and --engine says {engine}; leave it out, or choose a kube-proxy"
                )
        return EngineChoice(engine, iptables=iptables or "")

    try:
        gates = read_gates(feature_gates)
    except ValueError as error:
        raise click.UsageError(f"--feature-gates: {error}") from None
    upstream = upstream_for(engine, kube_proxy, _tell, flags=flags, gates=gates)
    return EngineChoice(engine, iptables=iptables or "", upstream=upstream)


def _tell(line: str) -> None:
    click.echo(line, err=True)
