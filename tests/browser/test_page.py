"""The page of a run in Chromium: looked at in three widths, light and dark, and used by mouse and keyboard."""

import json
import os
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from browser import Browser, browser, chromium
from made_steps import all_well, entry_remains, torn_connection
from msgspec.structs import replace
from probed import CASES, RUN
from recorded import World

from proxylab.evidence.evidence import Packet, TraceStep
from proxylab.report.html import Heading, PageEntry, entries_of, entry, page
from proxylab.scenario.expect import NodeDevice, Preserved
from proxylab.verdict.judge import judge

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="needs Chromium; 'apt-get install chromium'"),
]

HOSTILE = "</script><img src=x onerror=hacked=1><svg onload=hacked=1>"
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "report.png"
OURS, THEIRS = "embedded/iptables", "kube-proxy/nftables"
SHOWN = "[...document.querySelectorAll('.probe:not([hidden]) .name')].map((each) => each.textContent)"


LONG_STEP = TraceStep(
    netns_name="node-a",
    packet=Packet.REQUEST,
    source=ip_address("172.18.0.9"),
    source_port=1024,
    destination=ip_address("10.96.0.1"),
    destination_port=80,
    in_device="eth0",
    table="nat",
    chain="KUBE-SERVICES",
    kind="rule",
    text=f'-A KUBE-SERVICES -m comment --comment "{"kubernetes service nodeports " * 6}" -j KUBE-NODEPORTS',
    at=2,
)


def crossing(ipv6: bool) -> PageEntry:
    """A probe that was seen at every device of two nodes."""
    world = World(ipv6=ipv6, backends=("echo-1", "echo-2", "echo-3"), source=Preserved(), name="across two nodes")
    node = ip_address("fd00:172:18::2" if ipv6 else "172.18.0.2")
    counts = (world.balanced(), world.translated("echo-1"), world.masqueraded())
    verdict = judge(world.probe, world.resolved, None, world.evidence(world.crossing(0, "echo-1", node), counts=counts))
    traced = replace(verdict.evidence, steps=(LONG_STEP,))
    heading = Heading(file="scenarios/wire/across.lab.yaml", engine=OURS, tags=("wire", "snat"))
    return entry(heading, replace(verdict, traced=traced))


def entries() -> list[PageEntry]:
    found = [each for result in RUN for each in entries_of(result)]
    every = Heading(file="scenarios/every-way.lab.yaml", engine=THEIRS, case="ipv4", tags=("slow",))
    found += [entry(every, make()) for make in CASES.values()]
    hostile = Heading(file=HOSTILE, engine=OURS, case=HOSTILE, description=HOSTILE, tags=(HOSTILE,))
    verdict = CASES["passed"]()
    named = replace(verdict, case=replace(verdict.case, probe=replace(verdict.probe, name=HOSTILE)))
    found += [entry(every, make()) for make in (all_well, entry_remains, torn_connection)]
    return [*found, crossing(ipv6=False), crossing(ipv6=True), entry(hostile, named)]


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def shown(tab: Browser, tmp_path: Path) -> Browser:
    """The page, as a user sees it who has just opened it."""
    file = tmp_path / "report.html"
    file.write_text(page(entries(), {"kernel": "6.1.0", "proxylab": "1"}), encoding="utf-8")
    tab.look(1600)
    tab.errors.clear()
    tab.asked.clear()
    tab.open(file)
    return tab


def test_it_loads_nothing_runs_only_its_own_script_and_logs_no_error(shown: Browser) -> None:
    shown.tell("document.querySelector('[name=open]').click()")
    assert shown.tell("typeof hacked") == "undefined"
    assert shown.tell("document.images.length + document.scripts.length") == 1
    assert shown.errors == []
    assert [url.partition(":")[0] for url in shown.asked] == ["file"]


# Colours change no width.
@pytest.mark.parametrize(
    ("width", "dark"),
    [
        pytest.param(width, scheme == "dark", id=f"{width}-{scheme}", marks=[] if plain else [pytest.mark.thorough])
        for width in (390, 900, 1600)
        for scheme, plain in (("light", width != 390), ("dark", width == 390))
    ],
)
def test_it_fits_its_window_with_everything_open(shown: Browser, width: int, dark: bool) -> None:
    shown.look(width, dark=dark)
    shown.tell("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    beyond = "(node) => node.getBoundingClientRect().right > document.documentElement.clientWidth + 1"
    inside = "[...document.querySelectorAll('body *')].filter((node) => !node.closest('.scroll, pre, svg'))"
    assert shown.tell(f"{inside}.filter({beyond}).map((node) => node.outerHTML.slice(0, 200))") == []
    assert shown.tell("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    ground = shown.tell("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")


def test_rungs_lie_between_the_places_they_lead_from_and_to(shown: Browser) -> None:
    """Where it is wide: a hop's line begins and ends at the middles of two heads, and each change is at its node."""
    told = shown.tell(
        """(() => {
          const probe = [...document.querySelectorAll('.probe')].find((each) => each.querySelector('.n4'));
          probe.open = true;
          const middle = (node) => { const box = node.getBoundingClientRect(); return (box.left + box.right) / 2; };
          const heads = [...probe.querySelectorAll('.netns')].map(middle);
          const lines = [...probe.querySelectorAll('.hop')].map((each) => {
            const box = each.getBoundingClientRect();
            return [box.left, box.right].map((x) => heads.findIndex((head) => Math.abs(head - x) < 3));
          });
          const at = [...probe.querySelectorAll('.nat')].map(middle)
            .map((x) => heads.findIndex((head) => Math.abs(x - head) < 3));
          return JSON.stringify([lines, at]);
        })()"""
    )
    assert json.loads(told) == [[[0, 1], [1, 2], [2, 3], [2, 3], [1, 2], [0, 1]], [1, 1]]


@pytest.mark.parametrize("width", [390, 900])
def test_names_and_translations_are_not_broken_and_the_trace_keeps_to_its_box(shown: Browser, width: int) -> None:
    shown.look(width)
    shown.tell("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    names = "'.rules td:first-child, .rules td:nth-child(3), .whole, .translation'"
    broken = shown.tell(
        f"""(() => {{
          const lines = (node) => {{
            const range = document.createRange();
            range.selectNodeContents(node);
            return new Set([...range.getClientRects()].map((box) => Math.round(box.top / 8))).size;
          }};
          const nodes = [...document.querySelectorAll({names})];
          const several = nodes.filter((node) => lines(node) > 1).map((node) => node.textContent);
          return JSON.stringify([nodes.length, several]);
        }})()"""
    )
    found, several = json.loads(broken)
    assert found > 20
    assert several == []
    wide = "[...document.querySelectorAll('.trace pre')].filter((each) => each.querySelector('.line-of-trace'))"
    assert shown.tell(f"{wide}.length") > 0
    assert shown.tell(f"{wide}.filter((each) => each.scrollWidth > each.clientWidth + 1).length") == 0


def test_bars_are_as_long_as_their_shares(shown: Browser) -> None:
    told = shown.tell(
        """(() => {
          const bars = [...document.querySelectorAll('.probe')].find((each) => each.querySelector('.name')
            .textContent === 'flows are shared evenly' && each.querySelector('.due'));
          bars.open = true;
          const wide = (kind) => [...bars.querySelectorAll(kind)].map((each) => each.getBoundingClientRect());
          return JSON.stringify([wide('.got').map((box) => box.width), wide('line.due').map((box) => box.x)]);
        })()"""
    )
    widths, dues = json.loads(told)
    assert [round(width / widths[0], 2) for width in widths] == [1.0, 1.0, 0.0]
    assert len({round(due) for due in dues}) == 1
    assert dues[0] > 0


ENGINE = f"form.elements.engine.value = '{OURS}'"


@pytest.mark.parametrize(
    ("doing", "left"),
    [
        ("form.elements.text.value = 'ACROSS lab.yaml 172.18.0.2'", ["across two nodes"]),
        ("form.elements.tag.value = 'snat'", ["across two nodes", "across two nodes"]),
        ("form.elements.engine.value = 'embedded/ipvs'", ["skipped"]),
        (
            "verdicts.forEach((each) => { each.checked = each.value === 'inconclusive' });" + ENGINE,
            ["no local endpoint drops"],
        ),
        ("form.elements.text.value = 'nothing is called so'", []),
    ],
    ids=["text", "tag", "engine", "verdict and engine", "nothing"],
)
def test_filters_leave_what_was_asked_for(shown: Browser, doing: str, left: list[str]) -> None:
    total = shown.tell(f"{SHOWN}.length")
    form = "const form = document.getElementById('filters')"
    verdicts = "const verdicts = form.querySelectorAll('[name=verdict]')"
    shown.tell(f"(() => {{ {form}; {verdicts}; {doing}; form.dispatchEvent(new Event('input')) }})()")
    assert shown.tell(SHOWN) == left
    assert shown.tell("document.querySelector('output').value") == f"{len(left)} of {total} probes"
    assert shown.tell("document.getElementById('nothing').hidden") is bool(left)
    shown_sections = "[...document.querySelectorAll('.scenario')].filter((each) => !each.hidden).length"
    assert shown.tell(shown_sections) == shown.tell(
        "document.querySelectorAll('.matrix tbody tr:not([hidden])').length"
    )


def test_a_keyboard_is_enough(shown: Browser) -> None:
    shown.press("Tab", 9)
    assert shown.tell("document.activeElement.textContent") == "Skip to the probes"
    shown.press("/", 191, "/")
    assert shown.tell("document.activeElement.name") == "text"
    assert shown.tell("document.activeElement.value") == ""
    shown.tell("document.querySelector('.probe:not([open]) > summary').focus()")
    shown.press("Enter", 13, "\r")
    assert shown.tell("document.activeElement.parentElement.open")


def test_a_cell_of_the_table_leads_to_its_probes_and_opens_what_is_wrong(shown: Browser) -> None:
    shown.tell("document.querySelector('[name=close]').click()")
    shown.tell("document.querySelector('[data-file=\"scenarios/every-way.lab.yaml\"] a').click()")
    shown.tell("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert shown.tell("document.querySelectorAll('.probe[open]').length") == 1
    assert shown.tell("document.querySelector('.probe[open]').dataset.verdict") != "pass"
    top = shown.tell("document.getElementById(location.hash.slice(1)).getBoundingClientRect().top")
    assert 0 <= top < 900


def test_who_listens_is_told_what_others_see(shown: Browser) -> None:
    """Every control has a name, every table its heads, and a hop is told in words."""
    nameless = "[...document.querySelectorAll('input, select')].filter((each) => !each.labels.length).length"
    assert shown.tell(nameless) == 0
    assert shown.tell("[...document.querySelectorAll('button')].every((each) => each.textContent)")
    assert shown.tell("document.querySelectorAll('table:not(:has(th[scope]))').length") == 0
    words = "[...document.querySelectorAll('.n4 .hop .whence')].slice(0, 2).map((each) => each.textContent)"
    assert shown.tell(words) == ["debug eth0 to node-a debug", "node-a eth0 to node-b eth0"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_words_stand_out_from_their_ground(shown: Browser, dark: bool) -> None:
    """At least 4.5 to 1, as WCAG 2.2 asks of text (success criterion 1.4.3)."""
    shown.look(1600, dark=dark)
    shown.tell("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    weak = shown.tell(
        """(() => {
          const parse = (text) => text.match(/[\\d.]+/g).map(Number);
          const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
            .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
          const ground = (node) => {
            for (let at = node; at; at = at.parentElement) {
              const found = parse(getComputedStyle(at).backgroundColor);
              if (found.length < 4 || found[3] > 0) return found;
            }
            return [255, 255, 255];
          };
          const found = new Set();
          for (const node of document.querySelectorAll('body *')) {
            if (![...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim())) continue;
            if (!node.checkVisibility() || node.closest('script, option')) continue;
            const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
            const ratio = (a + 0.05) / (b + 0.05);
            if (ratio < 4.5) found.add(`${node.tagName}.${node.className} ${ratio.toFixed(2)}`);
          }
          return JSON.stringify([...found]);
        })()"""
    )
    assert json.loads(weak) == []


def test_the_picture_in_the_readme_is_of_this_page(tab: Browser, tmp_path: Path) -> None:
    """``LAB_DOCS=write`` takes it anew. Fonts differ from machine to machine, so only what is in it is compared."""
    world = replace(
        World(backends=("echo-1", "echo-2", "echo-3"), source=NodeDevice("node-a", "uplink")),
        name="an outside host is masqueraded where it enters",
        addresses={"debug": ip_address("203.0.113.10")},
    )
    counts = (world.balanced(), world.marked(), world.translated("echo-1"))
    node_a = ip_address("172.18.0.2")
    verdict = judge(world.probe, world.resolved, node_a, world.evidence(world.crossing(0, "echo-1"), counts=counts))
    shown = entry(Heading(file="scenarios/clusterip/from-an-outside-host.lab.yaml", engine=OURS), verdict)
    file = tmp_path / "report.html"
    file.write_text(page([shown], {}), encoding="utf-8")
    tab.look(1180, 1010)
    tab.open(file)
    tab.tell("document.getElementById('filters').hidden = true; document.querySelector('.probe').scrollIntoView()")
    tab.tell("scrollTo(0, document.querySelector('.probe').getBoundingClientRect().top + scrollY - 12)")
    assert tab.tell("document.querySelector('.why').textContent").startswith(
        "Why: the packet kept the client's address"
    )
    if os.environ.get("LAB_DOCS") == "write":
        tab.picture(PICTURE)
    size = PICTURE.read_bytes()[16:24]  # PNG, IHDR: width and height
    assert [int.from_bytes(size[:4], "big"), int.from_bytes(size[4:], "big")] == [1180, 1010]
    assert PICTURE.stat().st_size < 150_000
