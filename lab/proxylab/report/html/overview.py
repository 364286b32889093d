"""The head of the HTML report: counts, the table of scenarios and engines, and the filters (see ``page.js``)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from proxylab.evidence.words import amount
from proxylab.report.html.entry import PageEntry
from proxylab.report.html.markup import Markup, joined, tag
from proxylab.verdict.model import Judgement, worst

WORST_FIRST: Final = (Judgement.FAIL, Judgement.INCONCLUSIVE, Judgement.PASS, Judgement.SKIP)

_PARTICIPLES: Final = {
    Judgement.FAIL: "failed",
    Judgement.INCONCLUSIVE: "inconclusive",
    Judgement.PASS: "passed",
    Judgement.SKIP: "skipped",
}


class Sections(Struct, frozen=True):
    """The entries of a run by file and engine, in the order of the run."""

    by_file: Mapping[str, Mapping[str, Sequence[PageEntry]]]
    engines: tuple[str, ...]

    @classmethod
    def of(cls, entries: Sequence[PageEntry]) -> "Sections":
        """Sort the entries of a run."""
        found: dict[str, dict[str, list[PageEntry]]] = {}
        for each in entries:
            found.setdefault(each.heading.file, {}).setdefault(each.heading.engine, []).append(each)
        return cls(found, tuple(dict.fromkeys(each.heading.engine for each in entries)))

    def anchor(self, file: str, engine: str) -> str:
        """The id of a file's section on an engine."""
        return f"s{list(self.by_file).index(file)}e{self.engines.index(engine)}"


def headline(entries: Sequence[PageEntry], about: Mapping[str, str]) -> Markup:
    """The number of entries per judgement, and the conditions of the run: which binaries ran, too."""
    counts = Counter(each.judgement for each in entries)
    said = [
        tag("li", tag("b", f"{counts[each]:,}"), f" {_PARTICIPLES[each]}", class_=f"count {each}")
        for each in WORST_FIRST
        if counts[each]
    ]
    ran: dict[str, dict[str, None]] = {}
    for each in entries:
        if each.heading.binary:
            ran.setdefault(each.heading.binary, {})[each.heading.engine] = None
    binaries = [(", ".join(engines), binary) for binary, engines in ran.items()]
    facts = [tag("div", tag("dt", word), tag("dd", text)) for word, text in (*about.items(), *binaries)]
    return joined(tag("ul", said, class_="counts", aria_label="Probes"), tag("dl", facts, class_="about"))


def filters(entries: Sequence[PageEntry], engines: Sequence[str]) -> Markup:
    """The filter form. It stays hidden unless the page's script runs."""
    counts = Counter(each.judgement for each in entries)
    tags = sorted({name for each in entries for name in each.heading.tags})
    verdicts = [
        tag(
            "label",
            tag("input", type="checkbox", name="verdict", value=str(each), checked=True),
            tag("span", f"{_PARTICIPLES[each]} ", tag("small", f"{counts[each]:,}"), class_=f"count {each}"),
        )
        for each in WORST_FIRST
        if counts[each]
    ]
    return tag(
        "form",
        tag(
            "label",
            tag("span", "Text", class_="label"),
            tag("input", type="search", name="text", placeholder="probe, scenario, address …", autocomplete="off"),
            class_="text",
        ),
        tag("fieldset", tag("legend", "Verdict"), verdicts),
        _choice("engine", "every engine", engines) if len(engines) > 1 else None,
        _choice("tag", "every tag", tags) if tags else None,
        tag("button", "Open all", type="button", name="open"),
        tag("button", "Close all", type="button", name="close"),
        tag("output", name="shown", role="status"),
        id="filters",
        role="search",
        aria_label="Which probes are shown",
        hidden=True,
    )


def _choice(name: str, every: str, values: Sequence[str]) -> Markup:
    options = [tag("option", every, value=""), *(tag("option", value, value=value) for value in values)]
    return tag("label", tag("span", name.title(), class_="label"), tag("select", options, name=name))


def overview(sections: Sections) -> Markup:
    """A row for each scenario, and a column for each engine."""
    head = tag(
        "tr",
        tag("th", "scenario", scope="col"),
        [tag("th", engine, scope="col", data_engine=engine) for engine in sections.engines],
    )
    rows = [_row(sections, file) for file in sections.by_file]
    return tag(
        "section",
        tag("h2", "Scenarios and engines"),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows), class_="matrix"), class_="scroll"),
        id="overview",
    )


def _row(sections: Sections, file: str) -> Markup:
    folder, slash, name = file.rpartition("/")
    stem = name.removesuffix(".lab.yaml")
    return tag(
        "tr",
        tag("th", tag("small", folder + slash), stem, tag("small", name[len(stem) :]), scope="row", title=file),
        [_cell(sections, file, engine) for engine in sections.engines],
        data_file=file,
    )


def _cell(sections: Sections, file: str, engine: str) -> Markup:
    found = sections.by_file[file].get(engine, ())
    if not found:
        return tag("td", "–", class_="none", data_engine=engine)
    counts = Counter(each.judgement for each in found)
    overall = worst(frozenset(counts))
    words = f"{counts[overall]} of {len(found)}" if counts[overall] < len(found) else f"{len(found)}"
    spoken = f"{amount(len(found), 'probe')}: " + ", ".join(
        f"{counts[each]} {_PARTICIPLES[each]}" for each in WORST_FIRST if counts[each]
    )
    link = tag("a", words, href=f"#{sections.anchor(file, engine)}", class_=f"judgement {overall}", aria_label=spoken)
    return tag("td", link, data_engine=engine)
