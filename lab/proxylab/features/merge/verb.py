"""``proxylab merge``: several runs as one (``proxylab.features.merge.merged_runs``)."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import click

from proxylab.cli.input_files import read_input
from proxylab.cli.options import argument, option, takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, paint, terminal_width, wants_color
from proxylab.errors import ExitCode
from proxylab.features.merge.merged_runs import merged_about, merged_documents, merged_entries, merged_junit
from proxylab.report.html import page, read_page
from proxylab.text import printable
from proxylab.verdict.model import Judgement

_KINDS = {".json": "JSON", ".xml": "JUnit", ".html": "HTML"}


@click.command("merge", short_help="Merge the reports of several runs, or of shards.")
@takes
def command(
    *,
    files: Annotated[
        tuple[Path, ...],
        argument(
            nargs=-1,
            required=True,
            metavar="FILE…",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
        ),
    ],
    output: Annotated[
        str,
        option(
            "-o",
            "--output",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="What to print of JSON documents. JUnit files and pages are merged into one of their kind.",
        ),
    ],
    color: Color,
) -> ExitCode:
    """Print the runs in FILE… as one: JSON documents, JUnit files, or HTML pages.

    Each engine, version and kernel gets a column. If two runs have the same scenario on the same engine and kernel, the
    columns name the files, too. Of a run in shards, all shards must be there. The exit code is that of one run with
    all results.

    Example: proxylab merge shard-1.json shard-2.json
    """
    kinds = {_KINDS.get(each.suffix) for each in files}
    if len(kinds) > 1 or kinds == {None}:
        raise click.UsageError("the files are of different kinds; name only *.json, only *.xml or only *.html")
    texts = {_label(each, files): read_input(each, "reports of `proxylab run` or pytest") for each in files}
    try:
        match kinds.pop():
            case "JSON":
                run = merged_documents(texts)
                lines = [run.to_json()] if output == "json" else run.lines(paint, terminal_width())
                echo("\n".join(lines), color=wants_color(sys.stdout, color))
                return run.exit_code
            case "JUnit":
                text, passed = merged_junit(texts)
                echo(text)
                return ExitCode.OK if passed else ExitCode.FAILED
            case _:
                return _pages(texts)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _label(file: Path, files: tuple[Path, ...]) -> str:
    """The name of a file without folder and suffix, unless another file has the same."""
    return printable(file.stem if [each.stem for each in files].count(file.stem) == 1 else str(file), keep="")


def _pages(texts: Mapping[str, str]) -> ExitCode:
    found = {}
    for label, text in texts.items():
        try:
            found[label] = read_page(text)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
    about = merged_about([each for _, each in found.values()])
    entries = merged_entries({label: each for label, (each, _) in found.items()})
    echo(page(entries, about, f"proxylab, {about.get('begun', '')}"), nl=False)
    judgements = {each.judgement for each in entries}
    if Judgement.FAIL in judgements:
        return ExitCode.FAILED
    return ExitCode.INCONCLUSIVE if Judgement.INCONCLUSIVE in judgements else ExitCode.OK
