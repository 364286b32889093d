"""A table of conformance as files: a page in HTML or Markdown, JUnit XML for CI systems, and a badge.

The pages have the same tables: a row for each proxy, and then for each mode its themes, what differs between its
proxies, its known differences, what was not judged and what does not conform, with a column for each proxy. No file
loads anything.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final
from xml.etree import ElementTree

from proxylab.features.conformance.conformance_table import Conformance, Item, ItemResult, conforming, sentence
from proxylab.report.html.markup import Markup, tag, unbroken

_BAD: Final = (ItemResult.FAIL, ItemResult.INCONCLUSIVE)
_LISTS: Final = (
    ("Known differences", (ItemResult.KNOWN,)),
    ("Not judged", (ItemResult.SKIP,)),
    ("Does not conform", _BAD),
)
_Rows = Sequence[Sequence[str]]

_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;"
    "padding:0 1rem}div{overflow-x:auto}table{border-collapse:collapse;margin:1rem 0}"
    "th,td{border-bottom:1px solid #8886;padding:.25rem .75rem;text-align:left;vertical-align:top}"
    "td:not(:first-child){font-variant-numeric:tabular-nums}td:nth-child(2),.whole{white-space:nowrap}"
)
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no document has (XML 1.0, section 2.2), though the log of an engine may."""
_GREEN: Final = "#1a7f37"
_RED: Final = "#cf222e"
_GREY: Final = "#57606a"


def markdown(found: Conformance) -> str:
    """The tables in Markdown, as GitHub reads it."""
    blocks = (part for heading, rows in _tables(found) for part in (heading and f"## {heading}", _markdown_table(rows)))
    return "\n\n".join(["# Conformance", *filter(None, blocks)])


def page(found: Conformance) -> str:
    """The tables as one HTML page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", "Conformance"),
        tag("style", Markup(_STYLE)),
    )
    blocks = [
        (tag("h2", heading) if heading else None, tag("div", tag("table", [*_html_rows(rows)])))
        for heading, rows in _tables(found)
    ]
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('h1', 'Conformance'), blocks), lang='en')}"


def junit(found: Conformance) -> str:
    """A test suite for each column, with a test case for each item."""
    whole = ElementTree.Element("testsuites", name="proxylab conformance")
    for column, subject in enumerate(found.columns):
        counts = found.counts(column)
        suite = ElementTree.SubElement(
            whole,
            "testsuite",
            name=subject.label,
            tests=str(counts.total()),
            failures=str(sum(counts[each] for each in _BAD)),
            errors="0",
            skipped=str(counts[ItemResult.SKIP]),
        )
        versions = {"kernel": subject.release, "proxylab": subject.proxylab, "catalogue": subject.catalogue}
        if subject.binary is not None:
            versions |= {"binary": str(subject.binary), "binary_sha256": subject.binary.digest}
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in versions.items():
            ElementTree.SubElement(properties, "property", name=name, value=value)
        for item in found.having(column, *ItemResult):
            _test_case(suite, item, column)
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", ElementTree.tostring(whole, "unicode", xml_declaration=True))


def _test_case(suite: ElementTree.Element, item: Item, column: int) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=item.scenario, name=item.name or item.scenario)
    result, reason = item.results[column], item.reason(column)
    if result in _BAD:
        ElementTree.SubElement(case, "failure", message=reason, type=str(result))
    elif result is ItemResult.SKIP:
        ElementTree.SubElement(case, "skipped", message=reason)
    elif result is ItemResult.KNOWN:
        ElementTree.SubElement(case, "system-out").text = f"known difference: {reason}"


def badge(found: Conformance) -> str:
    """An SVG badge with the sum of all columns: ``conforms | 412 of 412 (3 known differences)``."""
    counts: Counter[ItemResult] = sum((found.counts(each) for each in range(len(found.columns))), Counter())
    words = "conforms", sentence(counts)
    judged = any(counts[each] for each in (*_BAD, ItemResult.PASS, ItemResult.KNOWN))
    colour = _RED if any(counts[each] for each in _BAD) else _GREEN if judged else _GREY
    label, value = (10 + 6.5 * len(each) for each in words)
    box = 'width="{}" height="20" fill="{}"'
    text = '<text x="{}" y="14" textLength="{}">{}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{label + value}" height="20" role="img"'
        f' aria-label="{": ".join(words)}"><title>{": ".join(words)}</title>'
        f"<rect {box.format(label, '#444c56')}/>"
        f'<rect x="{label}" {box.format(value, colour)}/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{text.format(5, label - 10, words[0])}{text.format(label + 5, value - 10, words[1])}</g></svg>"
    )


def _tables(found: Conformance) -> Iterator[tuple[str, _Rows]]:
    """The tables of a page with their headings; the first row of each is its head."""
    yield "", [*_summary(found)]
    for mode in dict.fromkeys(each.mode for each in found.columns):
        columns = [number for number, each in enumerate(found.columns) if each.mode == mode]
        proxies = [_heading(found, each, columns).replace(f"/{mode}", "") for each in columns]
        yield f"Mode {mode}", [("theme", *proxies), *_themes(found, columns)]
        differing = [*_differing(found, columns)]
        if differing:
            yield f"Differs in mode {mode}", [("item", *proxies), *differing]
        for heading, results in _LISTS:
            rows = [*_reasons(found, columns, results)]
            if rows:
                yield f"{heading} in mode {mode}", [("reason", *proxies), *rows]


def _heading(found: Conformance, column: int, columns: Sequence[int]) -> str:
    """The proxy, with the options that tell it from others of its name."""
    subject = found.columns[column]
    alike = [each.options for each in (found.columns[number] for number in columns) if each.label == subject.label]
    return " ".join((subject.label, *(word for word in subject.options if not all(word in each for each in alike))))


def _summary(found: Conformance) -> Iterator[Sequence[str]]:
    yield "proxy", "conform", "known differences", "not judged", "kernel", "scenarios", "proxylab", "run", "binary"
    for column, each in enumerate(found.columns):
        counts = found.counts(column)
        yield (
            " ".join((each.label, *each.options)),
            conforming(counts),
            *(f"{counts[result]:,}" for result in (ItemResult.KNOWN, ItemResult.SKIP)),
            each.release,
            f"{each.scenarios:,} ({each.catalogue})",
            each.proxylab,
            each.begun,
            each.ran,
        )


def _themes(found: Conformance, columns: Sequence[int]) -> Iterator[Sequence[str]]:
    for theme in (*found.themes, ""):
        cells = []
        for counts in (found.counts(each, theme) for each in columns):
            aside = f" ({counts[ItemResult.KNOWN]:,} known)" if counts[ItemResult.KNOWN] else ""
            cells.append(f"{conforming(counts)}{aside}" if any(each is not ItemResult.SKIP for each in counts) else "")
        if any(cells):
            yield theme or "all", *cells


def _differing(found: Conformance, columns: Sequence[int]) -> Iterator[Sequence[str]]:
    """The items whose result is not the same on all proxies that ran their scenario, with the reason of each.

    An item that only some of them have is one if it does not conform: a lab may have failed there.
    """
    ran = {each: found.scenarios(each) for each in columns}
    for item in found.items:
        here = [each for each in columns if item.scenario in ran[each]]
        results = {item.results[each] for each in here}
        if len(results) > 1 and (len(results - {None}) > 1 or not results.isdisjoint(_BAD)):
            yield item.title, *(_in_words(item, each) if each in here else "" for each in columns)


def _in_words(item: Item, column: int) -> str:
    result, reason = item.results[column], item.reason(column)
    return f"{result or 'absent'}{f': {reason}' if reason else ''}"


def _reasons(found: Conformance, columns: Sequence[int], results: Sequence[ItemResult]) -> Iterator[Sequence[str]]:
    """The reasons for these results, the most frequent first, with the number of items of each column.

    What does not conform is named, item by item.
    """
    counts: dict[str, Counter[int]] = {}
    for column in columns:
        for item in found.having(column, *results):
            # What a machine lacked for one probe it lacked for its like.
            of_any = item.reason(column).replace(f"probe '{item.name}'", "the probe")
            reason = f"{item.title}: {item.reason(column)}" if results == _BAD else of_any
            counts.setdefault(reason, Counter())[column] += 1
    for reason, numbers in sorted(counts.items(), key=lambda each: -each[1].total()):
        yield reason, *(f"{numbers[each]:,}" if numbers[each] else "" for each in columns)


def _markdown_table(rows: _Rows) -> str:
    escaped = ([" ".join(cell.split()).replace("|", "&#124;").replace("<", "&lt;") for cell in row] for row in rows)
    head, *others = (f"| {' | '.join(row)} |" for row in escaped)
    return "\n".join([head, f"|{' --- |' * len(rows[0])}", *others])


def _html_rows(rows: _Rows) -> Iterator[Markup]:
    for number, row in enumerate(rows):
        yield tag("tr", [tag("td" if number else "th", unbroken(each)) for each in row])
