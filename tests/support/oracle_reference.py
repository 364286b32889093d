"""The reference page of the oracle's rows, made from their table."""

from proxylab.oracle.rows import OracleRow, rows

__all__ = ["oracle_reference"]

_PAGE = """\
# What a Service must do

{total} rows from which `proxylab expected` derives what must become of a probe. [Its page](../explanation/oracle.md)
says how to read them. `lab/proxylab/oracle/rows.yaml` holds them. No document states {observed} of them; these say on
what they were observed.

| row | fact | holds in | follows from |
|---|---|---|---|
{rows}
"""


def oracle_reference() -> str:
    """A line for each row, in the order of the table."""
    table = rows().values()
    return _PAGE.format(
        total=len(table),
        observed=sum(bool(row.observed) for row in table),
        rows="\n".join(map(_line, table)),
    )


def _line(row: OracleRow) -> str:
    holds = ", ".join((*row.modes, *((str(row.versions),) if row.versions else ())))
    return f"| `{row.id}` | {row.text} | {holds or 'all'} | {_origin(row)} |"


def _origin(row: OracleRow) -> str:
    if row.observed:
        return f"*observed*: {row.observed}"
    page = row.source.partition("://")[2].partition("#")
    title = page[0].rstrip("/").rpartition("/")[2] + (f"#{page[2]}" if page[2] else "")
    named = "".join(f"<br>`{each}`" for each in row.promises)
    return f"[{title}]({row.source}){named}"
