"""``repro.sh`` sees without proxylab what the lab saw, for failed and passed probes.

``failing_probes`` has the defects of the labs. A script mostly waits, so several run at once.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from failing_probes import BROKEN, Broken
from played_scripts import Played, in_the_lab, may_differ, played, seen_by
from sandboxed import ROOT

from proxylab.client.session import Session
from proxylab.engines.engine_names import version_of
from proxylab.report.bundle import CASE, read_case
from proxylab.report.reproduction import MOST_LINES
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.verdict.model import Judgement, ProbeVerdict

pytestmark = pytest.mark.timeout(400)  # the first test waits for all labs

AT_ONCE = 4
SHOWN = [each for each in BROKEN if not each.none]

SAMPLE = {
    "affinity/client-ip": ("ClientIP affinity sends all connections of a pod to one endpoint",),
    "clusterip/from-a-pod": (
        "ClusterIP from a pod to another node preserves the client IP",
        "ClusterIP from a pod spreads connections evenly over all endpoints",
        "ClusterIP from a pod to itself is masqueraded by its node",
        "ClusterIP from outside is masqueraded by the entry node towards another node",
    ),
    "clusterip/headless": (),
    "clusterip/host-network-endpoints": (),
    "fragments/datagrams-above-the-mtu": (),
    "icmp/echo-requests": (),
    "loadbalancer/source-ranges": (),
    "nodeport/traffic-policy-local": (),
    "rejections/at-every-frontend": (),
    "sctp/associations": (),
    "senders/from-a-node": (),
    "senders/from-loopback": (),
    "network/hairpin": (),
}
"""Scenarios that pass, by the probes that are sent; the first ones where none is named."""
MOST_PROBES = 4


@dataclass(frozen=True)
class Sent:
    """A sent probe, its bundle, and its script's report."""

    name: str
    verdict: ProbeVerdict
    bundle: Path
    done: Future[Played] | None


def bundles_of(together: Sequence[Broken], folder: Path) -> dict[str, Path]:
    """The bundles of probes with the same patch or none, which run at once."""
    files = []
    for number, broken in enumerate(together):
        text = (ROOT / broken.scenario).read_text(encoding="utf-8")
        for old, new in broken.edits:
            assert old in text
            text = text.replace(old, new, 1)
        files.append(folder / f"broken-{number}.lab.yaml")
        files[-1].write_text(text, encoding="utf-8")
    (folder / "sitecustomize.py").write_text(together[0].patch, encoding="utf-8")
    names = dict.fromkeys(name for broken in together for name in (broken.before, broken.probe) if name)
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "run", *(file.name for file in files),
         *(word for name in names for word in ("--probe", name)), "--bundle-dir", "kept"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "lab")])},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    found = [list((folder / "kept").glob(f"*/broken-{number}/*/repro.*[ht]")) for number in range(len(together))]
    assert all(len(each) == 1 for each in found), done.stdout + done.stderr
    return {broken.name: each[0].parent for broken, each in zip(together, found, strict=True)}


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield pool


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The bundle of each failing probe, by the name of its defect."""
    by_patch: dict[tuple[str, str], list[Broken]] = {}
    for broken in BROKEN:
        by_patch.setdefault((broken.patch, broken.before), []).append(broken)
    # Before the threads: the factory makes its own folder at its first call, and anew if two calls are the first.
    folders = [tmp_path_factory.mktemp("broken") for _ in by_patch]
    with ThreadPoolExecutor(2) as runs:
        done = runs.map(bundles_of, by_patch.values(), folders)
        return {name: bundle for each in done for name, bundle in each.items()}


@pytest.fixture(scope="module")
def failing(bundles: Mapping[str, Path], pool: ThreadPoolExecutor) -> Mapping[str, tuple[Future[Played], ...]]:
    """The report of each script, and its report after the repair."""
    return {
        each.name: (
            pool.submit(played, bundles[each.name], ordinary=True),
            *([pool.submit(played, bundles[each.name], edits=each.mended)] if each.mended else []),
        )
        for each in SHOWN
    }


@pytest.mark.parametrize("broken", SHOWN, ids=lambda broken: broken.name)
def test_the_script_shows_the_failure_without_proxylab(
    broken: Broken, bundles: Mapping[str, Path], failing: Mapping[str, tuple[Future[Played], ...]]
) -> None:
    done = failing[broken.name][0].result()
    assert done.returncode == 1, done.stdout + done.stderr
    recorded = read_case(CASE, (bundles[broken.name] / CASE).read_bytes())
    assert seen_by(done) in in_the_lab(recorded)


@pytest.mark.parametrize("broken", [each for each in SHOWN if each.mended], ids=lambda broken: broken.name)
def test_the_script_sees_when_it_is_mended(broken: Broken, failing: Mapping[str, tuple[Future[Played], ...]]) -> None:
    before, after = (each.result() for each in failing[broken.name])
    assert after.returncode == 0, after.stdout + after.stderr
    assert seen_by(after) != seen_by(before)


@pytest.mark.parametrize("broken", [each for each in BROKEN if each.none], ids=lambda broken: broken.name)
def test_what_no_single_packet_shows_has_no_script_and_the_bundle_says_why(
    broken: Broken, bundles: Mapping[str, Path]
) -> None:
    text = (bundles[broken.name] / "repro.txt").read_text(encoding="utf-8")
    assert broken.none in text.replace("\n", " ")
    assert "proxylab judge" in text


def test_a_script_that_cannot_rebuild_its_case_says_so(bundles: Mapping[str, Path]) -> None:
    done = played(bundles["the wrong pod"], edits=(("-restore <<", "-restore --nonsense <<"),))
    assert done.returncode == 2
    assert done.stderr.endswith("the setup failed\n")


@pytest.fixture(scope="module")
def passing(tmp_path_factory: pytest.TempPathFactory, pool: ThreadPoolExecutor) -> Sequence[Sent]:
    """The probes of the sample, and their scripts' reports."""
    folder, found = tmp_path_factory.mktemp("passing"), []
    with Session() as session:
        for name, wanted in SAMPLE.items():
            both = cases(
                load_scenario(ROOT / f"scenarios/{name}.lab.yaml"), "iptables", version_of("embedded/iptables")
            )[:2]
            for number, case in enumerate(both):
                lab = session.open(case)
                chosen = [each for each in case.probes if each.name.partition("[")[0] in wanted]
                # Of two cases, which are two families, each has every second probe.
                for probe in (chosen if wanted else case.probes[:MOST_PROBES])[number :: len(both)]:
                    verdict = lab.judged(probe)
                    bundle = folder / str(len(found))
                    for path, data in lab.bundle(verdict).items():
                        (bundle / path).parent.mkdir(parents=True, exist_ok=True)
                        (bundle / path).write_bytes(data)
                    done = pool.submit(played, bundle) if (bundle / "repro.sh").exists() else None
                    found.append(Sent(f"{name}: {probe.name}", verdict, bundle, done))
                lab.close()
    return found


# The scripts of failures, above, are made and played in the same way.
@pytest.mark.thorough
def test_scripts_see_what_the_lab_has_seen_of_what_passes(passing: Sequence[Sent]) -> None:
    assert {each.verdict.overall for each in passing} == {Judgement.PASS}
    told = {each.name: (each.done.result(), each) for each in passing if each.done}
    assert len(told) > 20
    for name, (done, sent) in told.items():
        assert done.returncode == 0, f"{name}:\n{done.stdout}{done.stderr}"
        lab = in_the_lab(read_case(CASE, (sent.bundle / CASE).read_bytes()))
        assert may_differ(done) or seen_by(done) in lab, f"{name}:\n{lab}\n{done.stdout}"


@pytest.mark.thorough  # it reads the scripts of the test above
def test_scripts_are_short_and_hold_their_rules_where_these_are_few(passing: Sequence[Sent]) -> None:
    scripts = [each.bundle / "repro.sh" for each in passing if each.done]
    lengths = {len(script.read_text(encoding="utf-8").splitlines()) for script in scripts}
    assert max(lengths) <= MOST_LINES
    assert sum((script.parent / "repro.rules").exists() for script in scripts) < len(scripts) / 2


@pytest.mark.parametrize(
    ("edits", "seen"),
    [
        ((("10.244.1.11:8080", "10.244.1.11:9"),), "delivered to solo from 10.244.0.12, reset by 10.96.1.2 port 80"),
        ((("-j DNAT --to-destination 10.244.1.11:8080", "-j RETURN"),), "not delivered"),
    ],
    ids=["another port", "no translation"],
)
def test_a_script_whose_rules_are_changed_sees_something_else(
    edits: tuple[tuple[str, str], ...], seen: str, passing: Sequence[Sent]
) -> None:
    sent = next(each for each in passing if each.name.endswith("to another node preserves the client IP"))
    done = played(sent.bundle, edits=edits)
    assert done.returncode == 1, done.stdout + done.stderr
    assert seen_by(done).startswith(seen)
