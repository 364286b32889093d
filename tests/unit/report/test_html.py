"""The page of a run, as text: it is whole, it loads nothing, and nothing in it can become anything else."""

import re
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from made_steps import torn_connection
from msgspec.structs import replace
from probed import CASES, ECHOES, RUN
from recorded import World

from proxylab.errors import ExitCode
from proxylab.evidence.evidence import Direction, RuleCount
from proxylab.oracle.rows import rows
from proxylab.report.html import Heading, PageEntry, entries_of, entry, message, page
from proxylab.report.html.ladder import MOST_COLUMNS
from proxylab.report.html.markup import Markup, tag
from proxylab.scenario.expect import Preserved
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Fault, Judgement, ProbeVerdict, ScenarioResult

HOSTILE = "</script></style><img src=x onerror=alert(1)>\"'<svg onload=alert(2)>"
VOID = {"meta", "input"}


class Reader(HTMLParser):
    """Reads a page as a browser would, and notes what a browser would make of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, attribute: str) -> list[str]:
        return [value for name, value in self.attributes if name == attribute]


def entries() -> list[PageEntry]:
    found = [each for result in RUN for each in entries_of(result)]
    heading = Heading(file="scenarios/all.lab.yaml", engine="kube-proxy/nftables", case="ipv6", tags=("snat", "slow"))
    return [*found, *(entry(heading, make()) for make in CASES.values())]


def hostile() -> ProbeVerdict:
    world = World(name=HOSTILE, backends=ECHOES, source=Preserved(), addresses={})
    count = RuleCount("node-a", "nat", "KUBE-SEP-X", f"-A KUBE-SEP-X -m comment --comment '{HOSTILE[:60]}' -j DROP", 1)
    seen = [replace(each, netns_name=HOSTILE, device=HOSTILE) for each in world.crossing(0, "echo-1")[1:3]]
    evidence = world.evidence([world.leaves(0), *seen], counts=(count, world.dropped()))
    return replace(judge(world.probe, world.resolved, None, evidence), bundle=HOSTILE, options=(HOSTILE,))


def test_a_page_is_whole_and_its_ids_are_its_own() -> None:
    read = Reader(page(entries(), {"kernel": "6.1"}))
    assert read.elements["details"] >= len(CASES)
    ids = read.all("id")
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in read.all("href")} <= set(ids)


def test_a_page_loads_nothing_and_runs_only_its_own_script() -> None:
    text = page(entries(), {})
    read = Reader(text)
    assert read.elements["script"] == read.elements["style"] == 1
    assert not {"link", "img", "iframe", "object", "base"} & set(read.elements)
    assert not [name for name, _ in read.attributes if name in ("src", "style", "srcset") or name.startswith("on")]
    assert "url(" not in text
    (policy,) = [value for value in read.all("content") if "default-src" in value]
    assert policy.startswith("default-src 'none'; ")
    for element, word in (("style", "style-src"), ("script", "script-src")):
        found = re.search(f"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert found is not None
        digest = b64encode(sha256(found[1].encode()).digest()).decode()
        assert f"{word} 'sha256-{digest}'" in policy


def test_a_run_on_another_kernel_has_a_column_and_names_its_release() -> None:
    fault = Fault(ExitCode.FAILED, "the engine ended")
    results = [ScenarioResult(file="f", name="n", engine="embedded/iptables", fault=fault, kernel=name, release=release)
               for name, release in (("host", "6.18.0"), ("uml", "7.2.11"))]  # fmt: skip
    words = Reader(page([each for result in results for each in entries_of(result)], {}, "t")).words
    assert "embedded/iptables on uml (7.2.11)" in words
    assert "embedded/iptables (6.18.0)" not in words


def test_names_cannot_become_anything_else() -> None:
    """A scenario, an engine's comments and an error may contain any text."""
    heading = Heading(
        file=HOSTILE, engine=HOSTILE, case=HOSTILE, scenario=HOSTILE, description=HOSTILE, tags=(HOSTILE,)
    )
    fault = Fault(ExitCode.FAILED, f"{HOSTILE}\n{HOSTILE}")
    broken = ScenarioResult(file=HOSTILE, name=HOSTILE, engine=HOSTILE, fault=fault)
    every = [
        entry(heading, hostile()),
        *entries_of(broken),
        message(heading, HOSTILE, Judgement.SKIP, HOSTILE),
    ]
    read = Reader(page(every, {HOSTILE: HOSTILE}, HOSTILE))
    assert read.elements["script"] == 1
    assert read.elements["img"] == 0
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert read.words.count("<img src=x onerror=alert(1)>") > 12


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("b", "<&>", Markup("<i></i>"), title='"<') == '<b title="&quot;&lt;">&lt;&amp;&gt;<i></i></b>'
    assert tag("p", None, ["a", ("b",)], class_="", hidden=False, open=True) == "<p open>ab</p>"


def test_a_scenario_has_a_row_and_an_engine_a_column() -> None:
    first = RUN[0]
    again = replace(first, engine="kube-proxy/nftables", probes=first.probes[:1])
    read = Reader(page([each for result in (*RUN, again) for each in entries_of(result)], {}))
    assert read.all("data-file") == [result.file for result in RUN]
    labels = read.all("aria-label")
    assert "4 probes: 1 failed, 1 inconclusive, 2 passed" in labels
    assert "1 probe: 1 passed" in labels
    assert "1 probe: 1 skipped" in labels


def test_a_name_stands_without_its_case() -> None:
    verdict = CASES["passed"]()
    named = replace(verdict, case=replace(verdict.case, probe=replace(verdict.probe, name="it holds[ipv6]")))
    assert entry(Heading(file="f", engine="e", case="ipv6"), named).name == "it holds"
    assert entry(Heading(file="f", engine="e"), named).name == "it holds[ipv6]"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("masqueraded", "between debug and echo-1: DNAT10.96.0.10:80 becomes "),
        ("uneven", "p = "),
        ("dropped", "dropped on node-a by KUBE-SERVICES: “default/echo has no local endpoints”"),
        ("strayed", "expected, not seen"),
        ("reply-untranslated", "Why: "),
    ],
)
def test_a_body_says_what_a_reader_looks_for(name: str, said: str) -> None:
    body = Reader(entry(Heading(file="f", engine="e"), CASES[name]()).body).words
    assert said in body


def test_a_page_says_from_which_facts_an_expectation_follows() -> None:
    verdict = CASES["passed"]()
    follows = ("preserve-pod-at-cluster-ip", "strict-reverse-path")
    promised = replace(verdict, verdicts=tuple(replace(each, follows=follows) for each in verdict.verdicts))
    read = Reader(entry(Heading(file="f", engine="e"), promised).body)
    stated, observed = (rows()[each] for each in follows)
    assert stated.text in read.words
    assert stated.source in read.all("href")
    assert f"{observed.text} (observed on Linux" in read.words
    assert stated.text not in Reader(entry(Heading(file="f", engine="e"), verdict).body).words


def test_more_places_than_columns_stand_below_each_other() -> None:
    world = World()
    ways = (("eth0", Direction.IN), ("eth1", Direction.OUT))
    devices = [
        replace(
            world.leaves(0), netns_name=f"node-{node}", device=device, direction=direction, at=1001 + 2 * node + step
        )
        for node in range(MOST_COLUMNS)
        for step, (device, direction) in enumerate(ways)
    ]
    resolved = replace(world.resolved, nodes=tuple(f"node-{number}" for number in range(MOST_COLUMNS)))
    verdict = judge(world.probe, resolved, None, world.evidence([world.leaves(0), *devices]))
    assert 'class="ladder flat"' in entry(Heading(file="f", engine="e"), verdict).body


def test_a_step_is_a_timeline_of_its_streams() -> None:
    read = Reader(entry(Heading(file="f", engine="e"), torn_connection()).body)
    kinds = Counter(value for value in read.all("class") if value.startswith("packet "))
    assert kinds == {"packet b0": 1, "packet b1": 5, "packet lost": 1, "packet rejected": 1}
    assert sum(value.startswith("break ") for value in read.all("class")) == 2
    assert "answered by new: 5" in read.words
    assert "packet 3, lost to an earlier step, is answered by old" in read.words
    netns_names = [float(value.removesuffix("%")) for value in (*read.all("x"), *read.all("x1"))]
    assert all(0 <= netns_name <= 100 for netns_name in netns_names)


def test_a_packet_in_a_circle_takes_one_rung() -> None:
    world = World()
    circle = [
        replace(world.leaves(0), netns_name="node-a", direction=direction, at=1001 + number)
        for number, direction in enumerate([Direction.IN, Direction.OUT] * 30)
    ]
    verdict = judge(world.probe, world.resolved, None, world.evidence([world.leaves(0), *circle]))
    body = entry(Heading(file="f", engine="e"), verdict).body
    assert "it came back 29 times, by eth0" in body
    assert body.count("<li") < 8
