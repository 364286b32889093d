"""A run as one HTML file that loads nothing else and runs only its own script."""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxylab.encoding import MisfitError, encode
from proxylab.report.foreign_documents import decode_printable
from proxylab.report.html.entry import PageEntry
from proxylab.report.html.markup import Child, Markup, tag
from proxylab.report.html.overview import Sections, filters, headline, overview
from proxylab.verdict.model import UNRESOLVED

_HERE: Final = Path(__file__).parent
_MOST_OPEN: Final = 5
"""So many of the probes that did not pass are open at first."""

_ABOUT: Final = re.compile(r"<!--about (.*?)-->")
_ENTRY: Final = re.compile(r"<!--entry (.*?)-->(.*?)<!--/entry-->", re.DOTALL)
"""What ``read_page`` finds. The text of an entry is escaped, so it contains no comment."""


def page(entries: Sequence[PageEntry], about: Mapping[str, str], title: str = "proxylab") -> str:
    """The file's text.

    Args:
        entries: in the order of the run; entries of one scenario on one engine need not be adjacent.
        about: facts about the whole run, by label.
        title: the page's title.
    """
    sections = Sections.of(entries)
    opened = {id(each) for each in [each for each in entries if each.judgement in UNRESOLVED][:_MOST_OPEN]}
    script = _read("page.js")
    return document(
        title,
        script,
        tag("a", "Skip to the probes", href="#probes", class_="skip-link"),
        _comment("about", about),
        tag("header", tag("h1", "proxylab"), headline(entries, about)),
        filters(entries, sections.engines),
        tag(
            "main",
            overview(sections),
            tag("div", list(_scenarios(sections, opened)), id="probes"),
            tag("p", "No probe matches the filters.", id="nothing", hidden=True),
        ),
        tag("script", Markup(script)),
    )


def document(title: str, script: str, *body: Child) -> str:
    """The text of a file with the style of all pages; ``script`` is the only one that the browser may run."""
    style = _read("page.css")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', *body), lang='en')}\n"


def read_page(text: str) -> tuple[list[PageEntry], dict[str, str]]:
    """The entries of a page, and the facts about its run.

    Raises:
        ValueError: it is no page of a run, or one of another version of proxylab.
    """
    about = _ABOUT.search(text)
    if about is None:
        raise ValueError("it is no page of a run by this version of proxylab")
    try:
        entries = [
            replace(decode_printable(each[1].encode(), PageEntry), body=each[2]) for each in _ENTRY.finditer(text)
        ]
        return entries, decode_printable(about[1].encode(), dict[str, str])
    except MisfitError as error:
        raise ValueError(f"the page is of another version of proxylab: {error}") from None


_ESCAPES: Final = {"<": r"\u003c", ">": r"\u003e", "--": r"-\u002d"}
"""What could end a comment; in JSON it occurs in strings only."""


def _comment(name: str, value: object) -> Markup:
    """A record in a comment."""
    text = encode(value).decode()
    for characters, escape in _ESCAPES.items():
        text = text.replace(characters, escape)
    return Markup(f"<!--{name} {text}-->")


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Content Security Policy, level 3: no URL is allowed, and inline text only with one of these hashes."""
    own = f"style-src {_hash(style)}; script-src {_hash(script)}"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _scenarios(sections: Sections, opened: set[int]) -> Iterator[Markup]:
    for file, by_engine in sections.by_file.items():
        first = next(iter(by_engine.values()))[0].heading
        yield tag(
            "section",
            tag("h2", file),
            tag("p", first.description, class_="description") if first.description else None,
            tag("ul", [tag("li", name) for name in first.tags], class_="tags", aria_label="Tags")
            if first.tags
            else None,
            [_runs(sections, file, engine, found, opened) for engine, found in by_engine.items()],
            class_="scenario",
        )


def _runs(sections: Sections, file: str, engine: str, found: Sequence[PageEntry], opened: set[int]) -> Markup:
    """The probes of a scenario on one engine, case by case."""
    cases = [
        tag(
            "section",
            tag(
                "h3",
                tag("span", f"{engine} ({kernel})" if kernel else engine, class_="engine"),
                tag("span", case, class_="case") if case else None,
            ),
            [_probe(each, id(each) in opened) for each in of_case],
            class_="run",
        )
        for (case, kernel), of_case in groupby(found, key=lambda each: (each.heading.case, each.heading.kernel))
    ]
    return tag("div", cases, id=sections.anchor(file, engine), data_engine=engine, tabindex=-1)


def _probe(each: PageEntry, opened: bool) -> Markup:
    return tag(
        "details",
        tag(
            "summary",
            tag("span", str(each.judgement), class_=f"judgement {each.judgement}"),
            tag("span", each.name, class_="name"),
            tag("span", each.summary, class_="brief"),
            tag("span", f"{each.seconds * 1000:,.0f} ms", class_="took") if each.seconds else None,
        ),
        tag(
            "div", _comment("entry", replace(each, body="")), Markup(each.body), Markup("<!--/entry-->"), class_="body"
        ),
        class_="probe",
        open=opened,
        data_verdict=str(each.judgement),
        data_tags=" ".join(each.heading.tags) or None,
    )
