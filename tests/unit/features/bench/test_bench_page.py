"""A benchmark as a drawing, as a page, in Markdown and on a terminal."""

from itertools import pairwise
from xml.etree import ElementTree

from benched import SIZES, benched, engine

from proxylab.features.bench.bench_page import page
from proxylab.features.bench.bench_plot import plot
from proxylab.features.bench.bench_text import to_lines, to_markdown
from proxylab.features.bench.comparison import compare
from proxylab.features.bench.figures import Figure

SVG = "{http://www.w3.org/2000/svg}"
REPORT = benched(engine(), engine("kube-proxy/nftables", slower=3.0), engine("embedded/ipvs", failure="no <IPVS> here"))


def test_the_drawing_is_well_formed_and_names_each_engine_and_figure() -> None:
    root = ElementTree.fromstring(plot(REPORT))
    texts = [each.text for each in root.iter(f"{SVG}text")]
    for each in REPORT.engines:
        assert each.name in texts
    for figure in REPORT.figures:
        assert figure.facts.title in texts


def test_a_power_is_a_straight_line() -> None:
    root = ElementTree.fromstring(plot(benched(engine())))
    titles = [each.text for each in root.iter(f"{SVG}text") if each.get("font-weight") == "bold"]
    lines = [each.get("points", "") for each in root.iter(f"{SVG}polyline")]
    points = [tuple(map(float, each.split(","))) for each in lines[titles.index("cold start")].split()]
    steps = [(x2 - x1, y1 - y2) for (x1, y1), (x2, y2) in pairwise(points)]
    assert len(points) == len(SIZES)
    assert abs(steps[0][1] / steps[0][0] - steps[1][1] / steps[1][0]) < 0.01
    assert steps[0][1] > 0


def test_what_was_not_measured_has_no_dot() -> None:
    def dots(*names: str) -> int:
        failing = [engine(each, failure="it ended") for each in names]
        return sum(1 for _ in ElementTree.fromstring(plot(benched(*failing))).iter(f"{SVG}circle"))

    of_legend, figures = 1, len(benched(engine()).figures)
    assert dots("embedded/iptables") == of_legend + figures * (len(SIZES) - 1)


def test_the_page_has_the_drawing_and_tables_and_escapes_what_others_say() -> None:
    text = page(REPORT, compare(REPORT, benched(*REPORT.engines[:1], engine("kube-proxy/nftables", slower=6.0))))
    assert text.count("<svg") == 1
    assert text.count("<table") == len(REPORT.figures) + 1
    assert "no &lt;IPVS&gt; here" in text
    assert Figure.COLD_START.facts.meaning.split(",")[0] in text
    assert "style=" not in text  # the policy of pages allows none


def test_a_table_has_the_median_of_each_size_and_the_growth() -> None:
    lines = [*to_lines(REPORT, 120)]
    at = lines.index("cold start")
    assert lines[at + 1].split() == ["engine", "100", "Services", "1,000", "10,000", "grows", "as"]
    assert lines[at + 2].split()[:7] == ["embedded/iptables", "200", "ms", "2.00", "s", "20.0", "s"]
    assert "n^1.00" in lines[at + 2]
    assert any("no <IPVS> here" in line for line in lines)


def test_markdown_says_what_each_figure_means() -> None:
    text = to_markdown(REPORT)
    for figure in REPORT.figures:
        assert figure.facts.meaning in text
    assert "| kube-proxy/nftables | 600 ms |" in text
