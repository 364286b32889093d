"""Tables of conformance: counts, side by side, compared, and read again."""

import json
import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from conformance_tables import BROKEN, RELEASE, subject
from fake_lab import verdict_on
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scenario_text import scenario_text

from proxylab.errors import ExitCode
from proxylab.features.conformance.conformance_files import badge, junit, markdown, page
from proxylab.features.conformance.conformance_table import (
    Conformance,
    Item,
    ItemResult,
    catalogue_digest,
    conformance_of,
    conforming,
    read,
    sentence,
    together,
    united,
)
from proxylab.features.conformance.conformance_text import change_lines, conformance_lines
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.words import Position
from proxylab.text import printable
from proxylab.verdict.model import Fault, KnownFailure, ScenarioResult, Skip

HERE = Position("x.lab.yaml", 1, 1)
ANY = st.none() | st.sampled_from(ItemResult)


def shown(most: int) -> st.SearchStrategy[str]:
    """What a terminal may show: other text is read as its escapes."""
    return st.text(max_size=most).filter(lambda text: printable(text, keep="") == text)


def tables(width: int) -> st.SearchStrategy[Conformance]:
    items = st.builds(
        lambda scenario, name, results, reason: Item(
            scenario=scenario, name=name, results=results, reasons={reason: (0,)} if reason else {}
        ),
        st.sampled_from(["a/x", "a/y", "b/x"]),
        shown(5),
        st.tuples(*[ANY] * width),
        shown(3),
    )
    columns = (subject(),) * width
    unique = st.lists(items, unique_by=lambda each: (each.scenario, each.name), max_size=6)
    return unique.map(lambda each: Conformance(columns, tuple(sorted(each, key=lambda item: item.scenario))))


@given(tables(2))
def test_a_document_is_read_as_it_was_written(table: Conformance) -> None:
    assert read(table.to_json()) == table


@given(tables(1), tables(2))
def test_side_by_side_every_column_keeps_its_results_and_reasons(first: Conformance, second: Conformance) -> None:
    both = together([first, second])
    assert both.columns == (*first.columns, *second.columns)
    for table, at in ((first, 0), (second, 1)):
        for column in range(len(table.columns)):
            assert both.counts(at + column) == table.counts(column)
            was = {each.title: each.reason(column) for each in table.items if each.results[column]}
            now = {each.title: each.reason(at + column) for each in both.items if each.results[at + column]}
            assert was == now


@given(tables(2), st.booleans())
def test_what_one_proxy_ran_in_parts_is_one_column(table: Conformance, is_split_by_scenario: bool) -> None:
    """Halves of a table put together are the table again, in whatever order; what ran twice stays two columns."""
    rows = [each for each in table.items if any(each.results)]
    whole = Conformance(
        table.columns[:1], tuple(replace(each, results=(ItemResult.PASS,), reasons={}) for each in rows)
    )

    def half(is_first: bool) -> Conformance:
        kept = [
            each
            for number, each in enumerate(whole.items)
            if (each.scenario == "a/x" if is_split_by_scenario else number % 2 == 0) == is_first
        ]
        return Conformance((replace(whole.columns[0], scenarios=1, begun=f"2026-11-2{is_first:d}"),), tuple(kept))

    halves = [half(True), half(False)]
    found = united(together(halves))
    if halves[0].scenarios(0) & halves[1].scenarios(0):
        assert found == together(halves)
        return
    (column,) = found.columns
    assert (column.scenarios, column.begun) == (2, "2026-11-20")
    assert {each.title: each.results for each in found.items} == {each.title: each.results for each in whole.items}


def test_parts_of_different_proxies_stay_apart_and_reasons_follow_their_columns() -> None:
    other = replace(RELEASE, columns=(subject(version="v1.36.4"),))
    first, second = (replace(RELEASE, items=items) for items in (RELEASE.items[:2], RELEASE.items[2:]))
    found = united(together([first, other, second]))
    assert [each.version for each in found.columns] == ["v1.36.3", "v1.36.4"]
    assert found.columns[0].scenarios == 8
    for column in (0, 1):
        assert found.counts(column) == RELEASE.counts(0)
        assert {each.title: each.reason(column) for each in found.items} == {
            each.title: each.reason(0) for each in RELEASE.items
        }


@pytest.mark.parametrize(
    "text", ["", "[]", '{"apiVersion":"proxylab/v1","kind":"RunReport","columns":[],"items":[]}', '{"columns":[]}']
)
def test_any_other_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ConformanceReport"):
        read(text)


def test_a_document_with_too_few_results_is_refused() -> None:
    document = json.loads(RELEASE.to_json())
    document["items"][0]["results"] = []
    with pytest.raises(ValueError, match="a result for each column"):
        read(json.dumps(document))


def test_what_conforms_is_counted_with_known_differences_and_without_what_was_not_judged() -> None:
    assert RELEASE.themes == ("clusterip", "nodeport", "sctp")
    assert [conforming(RELEASE.counts(0, theme)) for theme in RELEASE.themes] == ["2 of 2", "2 of 2", "0 of 0"]
    assert sentence(RELEASE.counts(0)) == "4 of 4 (1 known difference)"
    assert sentence(BROKEN.counts(0)) == "3 of 4 (1 known difference)"
    assert (RELEASE.exit_code, BROKEN.exit_code) == (ExitCode.OK, ExitCode.FAILED)


def test_the_text_names_what_failed_and_how_to_run_it_again() -> None:
    text = "\n".join(conformance_lines(together([RELEASE, BROKEN]), width=200))
    assert text.count("fail: clusterip/from-a-pod: ClusterIP from a pod preserves the client IP") == 1
    assert "proxylab run --catalogue clusterip/from-a-pod --engine kube-proxy/nftables" in text
    assert "  1  mode nftables has no node ports on 127.0.0.1" in text
    assert "NodePort on 127.0.0.1" not in text
    assert "NodePort on 127.0.0.1" in "\n".join(conformance_lines(RELEASE, verbose=True))


def test_a_change_for_the_worse_comes_first() -> None:
    renamed = (replace(BROKEN.items[0], name="another title"), *BROKEN.items[1:-1])
    both = together([RELEASE, replace(BROKEN, items=renamed)])
    assert [(each.before, each.after, each.is_worse) for each in both.changes(0, 1)] == [
        (ItemResult.PASS, None, False),
        (ItemResult.PASS, ItemResult.FAIL, True),
        (None, ItemResult.PASS, False),
    ]
    text = "\n".join(change_lines(both, 0, 1, width=200))
    assert "no longer conforms: 1\n  clusterip/from-a-pod: ClusterIP from a pod preserves the client IP\n" in text
    assert (
        "other: 2\n  clusterip/from-a-pod: ClusterIP from a pod spreads connections over all endpoints (pass, " in text
    )
    assert text.endswith("3 of 5 items differ, and 1 scenario ran in only one of them")
    assert change_lines(together([RELEASE, RELEASE]), 0, 1)[-1] == "0 of 5 items differ"


def test_the_column_to_compare_with_is_of_the_same_mode_then_kernel_then_version() -> None:
    def like(engine: str, version: str, kernel: str = "host") -> int | None:
        return published.like(subject(engine, version, kernel))

    published = Conformance(
        (
            subject("kube-proxy@v1.36/nftables", "v1.36.3"),
            subject("kube-proxy@v1.37/nftables", "v1.37.2"),
            subject("kube-proxy@v1.37/nftables", "v1.37.2", "uml"),
            subject("kube-proxy@v1.37/iptables", "v1.37.2"),
        ),
        (),
    )
    assert like("kube-proxy/nftables", "v1.36.3") == 0
    assert like("kube-proxy/nftables", "v1.38.0-alpha.1") == 1
    assert like("kube-proxy/nftables", "v1.36.9-dirty") == 0, "the nearest before"
    assert like("kube-proxy/nftables", "v1.37+0123456789abcd") == 1, "one of its minor"
    assert like("kube-proxy/nftables", "v1.35.0") == 0, "none before: the nearest after"
    assert like("kube-proxy/nftables", "v1.36.3", "uml") == 2
    assert like("kube-proxy/iptables", "v1.36.3") == 3
    assert like("kube-proxy/ipvs", "v1.37.2") is None


EXCEPT = """\
    except:
    - {when: %s, expect: {outcome: delivered, source: preserved}, because: it is so}
"""


@pytest.mark.parametrize(
    ("when", "result"),
    [
        ("{mode: nftables}", ItemResult.KNOWN),
        ('{version: "<1.30"}', ItemResult.KNOWN),
        ("{mode: iptables}", ItemResult.PASS),
        ("{podNetwork: ptp}", ItemResult.PASS),
    ],
)
def test_an_exception_for_the_mode_or_version_is_a_known_difference(when: str, result: ItemResult) -> None:
    text = scenario_text("one").replace("---\n", EXCEPT % when + "---\n", 1)
    (case,) = cases(parse_scenario(text, "a/x.lab.yaml"), "nftables", (1, 29))
    verdicts = tuple(map(verdict_on, case.probes))
    found = conformance_of(subject(), [ScenarioResult(file="a/x.lab.yaml", name="x", engine="e", probes=verdicts)])
    (item,) = found.items
    assert item.results == (result,)
    assert item.reasons == ({"it is so": (0,)} if result is ItemResult.KNOWN else {})


def test_a_scenario_without_verdicts_is_one_item() -> None:
    def run(name: str, **what: object) -> ScenarioResult:
        return ScenarioResult(
            file=f"/usr/lib/catalogue/sctp/{name}.lab.yaml", name=name, engine="e", case="ipv6", **what
        )

    found = conformance_of(
        subject(),
        [
            run("a", skipped=Skip("SCTP", "modprobe sctp")),
            run("b", fault=Fault(ExitCode.FAILED, "node-a: kube-proxy ended\nits log"), release="6.1", kernel="uml"),
            run("c", foreseen=KnownFailure("kubernetes#134024", "Interface does not exist", HERE)),
        ],
    )
    assert [(each.title, each.results[0], each.reason(0)) for each in found.items] == [
        ("sctp/a: [ipv6]", "skip", "needs SCTP"),
        ("sctp/b: [ipv6]", "fail", "node-a: kube-proxy ended"),
        ("sctp/c: [ipv6]", "known", "kubernetes#134024"),
    ]
    assert found.columns[0].release == "", "that of another kernel is not its own"


@given(tables(2))
def test_every_file_can_be_read_by_what_reads_its_form(table: Conformance) -> None:
    suites = ElementTree.fromstring(junit(table))
    for column, suite in enumerate(suites):
        counts = table.counts(column)
        found = Counter(next((each.tag for each in case), "pass") for case in suite.iter("testcase"))
        assert (
            found["failure"]
            == int(suite.get("failures", ""))
            == counts[ItemResult.FAIL] + counts[ItemResult.INCONCLUSIVE]
        )
        assert found["skipped"] == int(suite.get("skipped", "")) == counts[ItemResult.SKIP]
        assert found["system-out"] == counts[ItemResult.KNOWN]
        assert found.total() == int(suite.get("tests", "")) == counts.total()
    assert ElementTree.fromstring(badge(table)).tag == "{http://www.w3.org/2000/svg}svg"
    for block in markdown(table).split("\n\n"):
        rows = block.splitlines()
        assert rows[0].startswith("#") or {row.count("|") for row in rows} == {rows[0].count("|")}


def test_the_pages_have_the_versions_the_counts_and_the_reasons() -> None:
    both = together([RELEASE, BROKEN])
    assert '<span class="whole">kube-proxy@v1.36.3/nftables</span>' in page(both), "a browser breaks it at its hyphen"
    for text in (markdown(both), page(both)):
        words = re.sub(r"\W+", " ", re.sub("<[^>]*>", " ", text))
        assert "kube proxy v1 36 3 nftables 4 of 4 1 1 6 12 48 4 7e77326fe202 0 1 0 2026 11 23 18 52 UTC" in words
        assert "clusterip 2 of 2 1 of 2" in words
        assert "mode nftables has no node ports on 127 0 0 1 KEP 3866 1 1" in words
        assert "preserves the client IP echo 1 saw it come from 172 18 0 2 not from client 10 244 1 2 1" in words


def test_the_pages_list_what_differs_between_proxies_of_a_mode() -> None:
    alone = (replace(BROKEN.items[0], scenario="icmp/x"),)
    new = replace(BROKEN.items[0], name="a newer probe")
    third = replace(RELEASE, columns=(subject(version="v1.36.4"),), items=(*alone, new))
    both = together([RELEASE, replace(BROKEN, items=(*BROKEN.items, *alone)), third])
    for text in (markdown(both), page(both)):
        words = re.sub(r"\W+", " ", re.sub("<[^>]*>", " ", text))
        _, _, differing = words.partition("Differs in mode nftables")
        differing, _, _ = differing.partition("Known differences")
        assert "client IP pass fail echo 1" in differing
        assert "spreads connections" not in differing, "it passes on both"
        assert "icmp" not in differing, "it passes where it ran"
        assert "newer" not in differing, "it passes where it is"
    assert "Differs" not in markdown(together([RELEASE, RELEASE])) + markdown(BROKEN)


def test_options_tell_columns_of_one_proxy_apart() -> None:
    given = ("--kube-proxy", "./kubernetes", "--feature-gates", "A=false")
    other = replace(BROKEN, columns=(replace(subject(), options=given),))
    plain = replace(RELEASE, columns=(replace(subject(), options=given[:2]),))
    text = markdown(together([plain, other]))
    (heads,) = (line.split(" | ")[1:] for line in text.splitlines() if line.startswith("| theme"))
    assert [each.split()[1:] for each in heads] == [[], ["--feature-gates", "A=false", "|"]]


def test_what_a_machine_lacked_for_several_probes_is_one_row() -> None:
    items = [
        Item(scenario="sctp/x", name=name, results=(ItemResult.SKIP,), reasons={f"probe '{name}' connects": (0,)})
        for name in ("one", "other")
    ]
    (row,) = (each for each in markdown(replace(RELEASE, items=tuple(items))).splitlines() if "connects" in each)
    assert row.endswith("| 2 |")


def test_no_name_becomes_markup() -> None:
    evil = replace(BROKEN.items[1], name="<script>|</script>")
    found = replace(BROKEN, items=(evil,))
    assert "<script>" not in page(found)
    assert "<script>" not in markdown(found)
    assert "&lt;script>&#124;" in markdown(found)


@pytest.mark.parametrize(
    ("table", "words", "colour"),
    [
        (RELEASE, "conforms: 4 of 4 (1 known difference)", "#1a7f37"),
        (BROKEN, "conforms: 3 of 4 (1 known difference)", "#cf222e"),
        (replace(RELEASE, items=RELEASE.items[-1:]), "conforms: 0 of 0", "#57606a"),
    ],
)
def test_the_badge_is_green_only_if_everything_judged_conforms(table: Conformance, words: str, colour: str) -> None:
    assert f"<title>{words}</title>" in badge(table)
    assert colour in badge(table)


def test_the_digest_is_of_names_and_texts() -> None:
    one = catalogue_digest({"a": b"bc", "d": b""})
    assert one == catalogue_digest({"d": b"", "a": b"bc"})
    assert len({one, catalogue_digest({"ab": b"c", "d": b""}), catalogue_digest({"a": b"bc"})}) == 3
