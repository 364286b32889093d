"""``proxylab schema``: print the format of scenarios, as JSON Schema for editors or as Markdown for readers."""

import json
from typing import Annotated

import click

from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.scenario.json_schema import json_schema, reference_page


@click.command("schema", short_help="Print the format of scenarios as JSON Schema.")
@takes
def command(
    *,
    reference: Annotated[
        bool, option("--reference", is_flag=True, help="Print the reference page as Markdown instead.")
    ],
) -> None:
    """Print the format of scenarios as JSON Schema (draft-07), for editors with yaml-language-server.

    Example: proxylab schema
    """
    if reference:
        echo(reference_page(), nl=False)
    else:
        echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
