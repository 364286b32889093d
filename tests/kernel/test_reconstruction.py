"""``repro.sh`` of a failed step makes the step again under its streams, without proxylab, and shows the same failure.

Each row is a step of one scenario; the lab is run once for all of them. Two things are broken in it: the proxy lets
connection tracking remember pods that are gone, and the author expects what does not happen.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from played_scripts import Played, edited, played
from sandboxed import ROOT

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: failing}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    first: {nodes: [node-b], labels: {app: echo}, ports: [8080, {port: 5353, protocol: UDP}]}
    second: {nodes: [node-b], labels: {app: echo}, ports: [8080, {port: 5353, protocol: UDP}], ready: false}
    client: {nodes: [node-a]}
  streams:
    queries: {from: {name: client, port: 12345}, to: {service: echo, port: dns, via: clusterIP}, send: {every: 5ms}}
    pages: {from: client, to: {service: echo, port: http, via: clusterIP}, send: {every: 5ms}}
  steps:
  - name: both are there
    change: {pods: {second: {ready: true}}}
    expect: {queries: {backend: second}, pages: {source: 10.244.0.99}}
  - name: the cable is cut
    change: {links: {first: cut}}
    expect: {queries: {lost: 0}, pages: {lost: 0}}
  - name: it is mended
    change: {links: {first: mended}}
    expect: {queries: {lost: {atLeast: 900}, backends: [second]}}
  - name: the first is gone
    change: {pods: {first: null}}
    expect:
      queries: {backend: second, lost: 0}
      pages: {backends: [first]}
      conntrack: {none: {replyFrom: first, port: 53}}
  - name: nobody is there
    change: {services: {echo: {spec: {selector: {app: nobody}}}}}
    expect: {queries: {lost: 0}, pages: {resets: 1, delay: 1ms}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  selector: {app: echo}
  ports: [{name: dns, port: 53, targetPort: 5353, protocol: UDP}, {name: http, port: 80, targetPort: 8080}]
"""
FORGETFUL = "import lab.engines.embedded.udp as m; m.UdpReconciler.update = lambda self, ports: False"


@dataclass(frozen=True)
class Failing:
    """A step, what its script then says, and edits of the script with which it says no such thing."""

    step: str
    says: tuple[str, ...]
    mended: tuple[tuple[str, str], ...]


FAILING = [
    Failing(
        "both are there",
        (
            "queries: expected second to answer behind the wait, seen first",
            "pages: expected from 10.244.0.99, seen from 10.244.0.",
        ),
        mended=(('"backend": "second"', '"backend": "first"'), ('"source": "10.244.0.99"', '"source": ""')),
    ),
    Failing(
        "the cable is cut",
        ("queries: expected lost: 0, seen ", "pages: expected lost: 0, seen "),
        mended=(("inside first ip link set dev eth0 down", ":"),),
    ),
    Failing(
        "it is mended",
        ("queries: expected second to answer, seen first", "queries: expected lost: 900 or more, seen "),
        mended=(("900,", "0,"), ('[\n     "second"\n    ]', "[]")),
    ),
    Failing(
        "the first is gone",
        (
            "queries: expected second to answer behind the wait, seen nobody",
            "queries: expected lost: 0, seen ",
            "pages: expected first to answer, seen ",
            ":12345 > 10.96.1.1:53, answered by 10.244.1.10:5353 on node-a",
        ),
        mended=(('"forgotten": false', '"forgotten": true'), ('[\n     "first"\n    ]', "[]")),
    ),
    Failing(
        "nobody is there",
        ("queries: expected lost: 0, seen ", "pages: expected resets: 1, seen 0"),
        mended=(
            ('"remembered": [', '"remembered": [], "was remembered": ['),
            ('"resets": [\n     1,\n     1\n    ]', '"resets": null'),
            ('"delay": 1', '"delay": null'),
        ),
    ),
]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The script of each step that failed."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "failing.lab.yaml").write_text(SCENARIO)
    (folder / "sitecustomize.py").write_text(FORGETFUL)
    done = subprocess.run(
        [sys.executable, "-m", "lab", "run", "failing.lab.yaml", "--bundle-dir", "kept"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = folder.glob("kept/*/failing/step-*/repro.sh")
    return {script.parent.name.split("-", 2)[2].replace("-", " "): script for script in found}


@pytest.fixture(scope="module")
def told(scripts: Mapping[str, Path]) -> Mapping[str, tuple[Future[Played], Future[Played]]]:
    """What the script of each step says, as it is and mended; they are run at once."""
    with ThreadPoolExecutor(4) as pool:
        return {
            each.step: (
                pool.submit(played, scripts[each.step], ordinary=True),
                pool.submit(played, edited(scripts[each.step], each.mended), ordinary=False),
            )
            for each in FAILING
        }


@pytest.mark.parametrize("failing", FAILING, ids=lambda failing: failing.step)
def test_the_script_of_a_step_shows_the_failure_without_proxylab(
    failing: Failing, told: Mapping[str, tuple[Future[Played], Future[Played]]]
) -> None:
    done = told[failing.step][0].result()
    assert done.returncode == 1, done.stdout + done.stderr
    for words in (*failing.says, "The failure shows again."):
        assert words in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("failing", FAILING, ids=lambda failing: failing.step)
def test_the_script_of_a_step_sees_when_it_is_mended(
    failing: Failing, told: Mapping[str, tuple[Future[Played], Future[Played]]]
) -> None:
    done = told[failing.step][1].result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All is as it was expected" in done.stdout


def test_it_says_what_happened_and_what_it_does_not_know(scripts: Mapping[str, Path]) -> None:
    head = scripts["the first is gone"].read_text().partition("set -eu")[0]
    assert "FAIL: the first is gone" in head
    assert "what happened, from the beginning of the step:" in head
    assert "what lay\n# between is not known" in head
