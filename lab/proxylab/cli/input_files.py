"""Files that the user names as input of a verb: reports of earlier runs, and kubectl's output.

What cannot be read, or is no text, is a mistake on the command line.
"""

from pathlib import Path

import click

from proxylab.scenario.readable import why_unreadable


def read_input(file: Path, wanted: str) -> str:
    """The text of a file.

    Args:
        file: its path.
        wanted: what the verb takes, such as "what `proxylab run -o json` printed".

    Raises:
        UsageError: in one line.
    """
    try:
        why = why_unreadable(file)
        data = b"" if why else file.read_bytes()
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise click.UsageError(f"cannot read {file}: {why}; name {wanted}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is not UTF-8 text (byte {error.start}); name {wanted}") from None
