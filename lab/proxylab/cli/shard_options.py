"""``--shard I/N`` and ``--times FILE``: run only a part of the files (``proxylab.report.shards``)."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from proxylab.report.shards import Shard, recorded_seconds

__all__ = ["in_shard", "shard_options"]

Command = TypeVar("Command", bound=Callable[..., Any])


def shard_options(command: Command) -> Command:
    """Add the options ``shard`` and ``times``, for ``in_shard``."""
    shard = click.option(
        "--shard",
        metavar="I/N",
        callback=_shard,
        help="Run only the Ith of N parts of the files; `proxylab merge` merges their reports.",
    )
    times = click.option(
        "--times",
        metavar="FILE",
        callback=_times,
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Balance the shards by the times in this report of an earlier run, JSON or JUnit XML.",
    )
    return shard(times(command))


def _shard(ctx: click.Context, param: click.Parameter, value: str | None) -> Shard | None:
    try:
        return Shard.read(value) if value else None
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _times(ctx: click.Context, param: click.Parameter, file: Path | None) -> Mapping[str, float]:
    try:
        return recorded_seconds(file.read_text(encoding="utf-8")) if file else {}
    except ValueError as error:
        raise click.BadParameter(f"{file}: {error}", ctx, param) from None


def in_shard(files: Iterable[Path], shard: Shard | None, times: Mapping[str, float]) -> list[Path]:
    """The files of the shard, in their order; all without one."""
    every = list(dict.fromkeys(files))
    if shard is None:
        return every
    chosen = shard.files([str(each) for each in every], times)
    return [each for each in every if str(each) in chosen]
