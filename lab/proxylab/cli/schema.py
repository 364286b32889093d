"""``proxylab schema``: print the format of scenarios, as JSON Schema for editors or as Markdown for readers."""

import json

import click

from proxylab.cli.standard_streams import echo
from proxylab.scenario.json_schema import json_schema, reference_page


@click.command("schema", short_help="Print the format of scenarios as JSON Schema.")
@click.option("--reference", is_flag=True, help="Print the reference page as Markdown instead.")
def command(*, reference: bool) -> None:
    """Print the format of scenarios as JSON Schema (draft-07), for editors with yaml-language-server.

    Example: proxylab schema
    """
    if reference:
        echo(reference_page(), nl=False)
    else:
        echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
