"""How long a guest takes to boot, how much slower a scenario is in it than outside, and what mode ipvs takes there."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from guests import EACH, OWN
from sandboxed import ROOT

from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice
from proxylab.guest.kernels import Kernel, find_kernel
from proxylab.scenario.load import load_scenario
from proxylab.verdict.model import Judgement

pytestmark = [pytest.mark.benchmark, pytest.mark.budget, pytest.mark.timeout(600)]

SMALL = ROOT / "tests/kernel/killed.lab.yaml"
SCENARIO = ROOT / "scenarios/clusterip/from-a-pod.lab.yaml"
ROUNDS = 5
Record = Callable[[str, object], None]


@OWN
def test_the_first_rule_is_loaded_two_seconds_after_the_start_of_a_guest(record_property: Record) -> None:
    kernel = find_kernel("uml")
    assert kernel is not None
    taken = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        with Session(EngineChoice(kernel=kernel.binary)) as session, closing(session.open(load_scenario(SMALL))):
            taken.append(time.monotonic() - began)
    said = f"kernel {kernel.release}: from the start of a guest to a lab with rules {min(taken):.2f} s"
    record_property("guest", said)
    assert min(taken) < 2, said


def seconds(session: Session) -> Iterator[float]:
    """The time of a scenario in a lab process that has had labs before, round by round."""
    scenario = load_scenario(SCENARIO)
    for _ in range(ROUNDS + 1):
        began = time.monotonic()
        with closing(session.open(scenario)) as lab:
            assert {lab.probe(probe).overall for probe in scenario.probes} == {Judgement.PASS}
        yield time.monotonic() - began


@EACH
def test_a_scenario_takes_at_most_eight_times_as_long_in_a_warm_guest(kernel: Kernel, record_property: Record) -> None:
    with ExitStack() as stack:
        host, guest = (
            seconds(stack.enter_context(Session(EngineChoice(kernel=each)))) for each in ("host", kernel.binary)
        )
        rounds = list(zip(host, guest, strict=True))[1:]
    on_host, in_guest = (min(each) for each in zip(*rounds, strict=True))
    said = f"kernel {kernel.release}: {in_guest:.2f} s in the guest, {on_host:.2f} s on the host"
    record_property("guest", said)
    assert in_guest <= 8 * on_host, said


@OWN
def test_twenty_scenarios_of_mode_ipvs_take_at_most_ninety_seconds(record_property: Record) -> None:
    folders = ("affinity", "clusterip", "rejections", "senders")
    files = [file for folder in folders for file in sorted((ROOT / "scenarios" / folder).glob("*.lab.yaml"))][:20]
    assert len(files) == 20
    command = [
        sys.executable,
        "-m",
        "proxylab",
        "run",
        *map(str, files),
        "--engine",
        "embedded/ipvs",
        "--kernel",
        "uml",
    ]
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}
    done = subprocess.run([*command, "--quiet", "--no-bundles"], env=environment, timeout=600, check=False)
    taken = time.monotonic() - began
    said = f"20 scenarios on embedded/ipvs took {taken:.1f} s with the boot of the guest"
    record_property("guest", said)
    assert (done.returncode, taken < 90) == (0, True), said
