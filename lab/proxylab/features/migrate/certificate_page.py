"""A certificate as one HTML file, to hand to colleagues."""

from proxylab.features.migrate.certificate import Certificate, CertifiedChange
from proxylab.features.migrate.certificate_text import (
    LEFT_OUT,
    TELL_MORE,
    UNEXPLAINED,
    concerns,
    headline,
    kept,
    switch_lines,
    title,
)
from proxylab.report.html.markup import Markup, tag
from proxylab.report.html.page import document


def page(found: Certificate) -> str:
    """The text of the file."""
    return document(
        f"from {found.before.engine} to {found.after.engine}",
        "",
        tag("header", tag("h1", "proxylab migrate"), tag("p", headline(found))),
        tag(
            "main",
            [tag("p", kept(audit)) for audit in (found.before, found.after)],
            tag("h2", "What changes") if found.changes else tag("p", "No answer changes."),
            [_change(each) for each in found.changes],
            tag("h2", "What the lab could not decide") if found.undecided else None,
            [tag("p", f"{each.probe} on {each.engine}: {each.why}") for each in found.undecided],
            tag("h2", "Open connections"),
            [tag("p", line) for line in switch_lines(found.switch)],
            tag("h2", "What stays"),
            _same(found),
            [tag("p", f"{service}: not asked: {why}") for service, why in found.before.undialled.items()],
            tag("h2", LEFT_OUT.capitalize()) if found.left_out else None,
            tag("ul", [tag("li", each) for each in found.left_out]) if found.left_out else None,
            tag("p", TELL_MORE) if found.left_out else None,
        ),
    )


def _change(change: CertifiedChange) -> Markup:
    return tag(
        "details",
        tag("summary", title(change)),
        tag("p", concerns(change)),
        [tag("p", f"{each.text} ({each.because})") for each in change.reason.statements],
        None if change.reason.is_documented else tag("p", UNEXPLAINED),
        tag("p", tag("b", "What to do"), f": {change.reason.advice}"),
        open=True,
    )


def _same(found: Certificate) -> Markup:
    head = tag("tr", tag("th", "Service", scope="col"), tag("th", "same answers", scope="col"))
    body = [tag("tr", tag("th", service, scope="row"), tag("td", str(count))) for service, count in found.same.items()]
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="scroll")
