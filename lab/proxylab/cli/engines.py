"""``proxylab engines``: list the engines and the sources of the programs that labs run, and obtain a binary."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated

import click

from proxylab.binaries.binary import CONTROL_PLANE, COREDNS, Binary, BinaryProgram
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Offer, Sources, UnobtainableError, newest, obtain, offers, with_mode
from proxylab.binaries.programs import SOURCES_OF_PROGRAMS
from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Output, terminal_width
from proxylab.engines.engine_names import EMBEDDED, ENGINES, mode_of, read_engine
from proxylab.errors import ExitCode
from proxylab.text import WIDTH, wrapped

_NEWEST = "newest"
_MOST_VERSIONS = 5
_OTHERS = {each.name: SOURCES_OF_PROGRAMS[each] for each in (COREDNS, CONTROL_PLANE)}
"""The sources of the programs besides kube-proxy, by what ``--obtain`` calls them."""

_BY_HAND = (
    ("a file", "--kube-proxy FILE"),
    ("a kubernetes checkout", "--kube-proxy DIRECTORY builds it, with uncommitted changes"),
    ("a container image", "--kube-proxy image:registry.k8s.io/kube-proxy:v1.34.2, with Docker"),
)


@click.command("engines", short_help="List engines, and the sources of kube-proxy binaries.")
@takes
@click.pass_obj
def command(
    sources: object,
    /,
    *,
    wanted: Annotated[
        str | None,
        option(
            "--obtain",
            is_flag=False,
            flag_value=_NEWEST,
            metavar="[VERSION]",
            help="Put a kube-proxy into the cache: the newest available, or VERSION (v1.34, v1.34.2). coredns or "
            "coredns@VERSION puts a CoreDNS there, and control-plane or control-plane@VERSION a control plane of "
            "Kubernetes.",
        ),
    ],
    output: Output,
) -> ExitCode:
    """List the engines, the kube-proxies in the cache, and the sources of other versions.

    With --obtain, print the path of the binary. The exit code is 4 if no source answers, and 1 if a source answers
    but fails.

    Example: proxylab engines --obtain v1.34
    """
    known = sources if isinstance(sources, Sources) else Sources.of_user()
    if wanted is not None:
        return _obtain(wanted, known)
    others = {each: Cache.of_user(each).binaries() if sources is None else [] for each in (COREDNS, CONTROL_PLANE)}
    cached, offered = known.obtained(), offers(known)
    if output == "json":
        echo(json.dumps(_document(cached, offered, others), indent=2))
    else:
        echo("\n".join(engines_lines(cached, offered, terminal_width(), others)))
    return ExitCode.OK


def _obtain(wanted: str, sources: Sources) -> ExitCode:
    print_progress = partial(echo, err=True)
    try:
        program, _, version = wanted.partition("@")
        if program in _OTHERS:
            binary = newest(version, _OTHERS[program](), print_progress)
        elif wanted == _NEWEST:
            binary = newest("", sources, print_progress)
        else:
            binary = obtain(read_engine(f"kube-proxy@{wanted}/iptables"), "", sources, print_progress)
    except ValueError as error:
        raise click.UsageError(f"--obtain: {error}") from None
    except UnobtainableError as error:
        if not error.answered:
            raise
        echo(str(error), err=True)
        return ExitCode.FAILED
    echo(str(binary.path))
    return ExitCode.OK


def engines_lines(
    cached: list[Binary],
    offered: tuple[Offer, ...],
    width: int = WIDTH,
    others: Mapping[BinaryProgram, Sequence[Binary]] | None = None,
) -> list[str]:
    """The engines, the other programs that labs run, then the sources of kube-proxy."""
    width_of_names, found = max(map(len, ENGINES)), others or {}
    names = [f"{each.name:<{width_of_names}}  {_here(found.get(each, ()))}" for each in (COREDNS, CONTROL_PLANE)]
    return [*_engine_lines(cached), *names, "", *_source_lines(offered, width)]


def _engine_lines(cached: list[Binary]) -> Iterator[str]:
    width = max(map(len, ENGINES))
    for name in EMBEDDED:
        yield f"{name:<{width}}  built into proxylab"
    for name in ENGINES:
        if name not in EMBEDDED:
            fitting = with_mode(cached, mode_of(name))
            yield f"{name:<{width}}  {_here(fitting)}"
    for binary in cached[:-1]:
        yield f"{'kube-proxy@' + binary.version + '/…':<{width}}  cached ({binary.origin})"


def _here(cached: Sequence[Binary]) -> str:
    return f"cached, {cached[-1].version} ({cached[-1].origin})" if cached else "not cached"


def _source_lines(offered: tuple[Offer, ...], width: int) -> Iterator[str]:
    yield "sources of kube-proxy:"
    for what, how in (*_offered(offered), *_BY_HAND):
        yield from wrapped(f"{what}: {how}", "  ", "    ", width)


def _offered(offered: tuple[Offer, ...]) -> Iterator[tuple[str, str]]:
    for offer in offered:
        if offer.error:
            yield offer.word, f"needs {offer.error}"
            continue
        shown = ", ".join(reversed(offer.versions[-_MOST_VERSIONS:]))
        more = len(offer.versions) - _MOST_VERSIONS
        yield offer.word, f"--kube-proxy {offer.word}:VERSION: {shown}{f' and {more} more' if more > 0 else ''}"


def _document(
    cached: list[Binary], offered: tuple[Offer, ...], others: Mapping[BinaryProgram, Sequence[Binary]]
) -> dict[str, object]:
    return {
        "engines": list(ENGINES),
        "binaries": [each.to_document() for each in cached],
        "nameServers": [each.to_document() for each in others[COREDNS]],
        "controlPlanes": [each.to_document() for each in others[CONTROL_PLANE]],
        "sources": [each.to_document() for each in offered],
    }
