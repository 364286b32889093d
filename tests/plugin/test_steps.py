"""Probes of steps as items: their ids, their order, and what runs before one that is chosen."""

import pytest
from plugin_project import Project

STEPS = """\
  steps:
  - name: scaled to nothing
    change: {pods: {client: {ready: false}}}
    probes:
    - name: turned away
      from: client
      to: {service: echo, via: clusterIP}
      expect: {outcome: delivered, source: preserved}
  - name: nothing is asked here
    change: {pods: {client: {ready: true}}}
  - name: scaled up
    change: {pods: {client: {ready: false}}}
    probes:
    - name: answered again
      from: client
      to: {service: echo, via: clusterIP}
      expect: {outcome: delivered, source: preserved}
"""


@pytest.fixture
def stepped(project: Project) -> Project:
    path = project.scenario("x.lab.yaml", "first")
    path.write_text(path.read_text().replace("---\n", f"{STEPS}---\n"))
    return project


def done(project: Project) -> list[str]:
    return [event for event in project.events() if event.startswith(("open", "step", "probe"))]


IDS = ["first", "scaled to nothing: turned away", "scaled up: answered again"]


def test_ids_say_the_step(stepped: Project) -> None:
    result = stepped.run("--collect-only", "-q")
    assert result.outlines[:3] == [f"x.lab.yaml::{name}" for name in IDS]


def test_each_step_is_made_once_before_its_probes(stepped: Project) -> None:
    stepped.run().assert_outcomes(passed=3)
    assert done(stepped) == [
        "open fine",
        "probe first",
        "step scaled to nothing",
        "probe scaled to nothing: turned away",
        "step nothing is asked here",
        "step scaled up",
        "probe scaled up: answered again",
    ]


def test_one_probe_alone_makes_the_steps_before_it_and_judges_none(stepped: Project) -> None:
    stepped.run("-k", "scaled and up").assert_outcomes(passed=1, deselected=2)
    assert done(stepped) == [
        "open fine",
        "step scaled to nothing",
        "step nothing is asked here",
        "step scaled up",
        "probe scaled up: answered again",
    ]


def test_a_probe_of_an_earlier_step_gets_a_lab_of_its_own(stepped: Project) -> None:
    stepped.run(*(f"x.lab.yaml::{name}" for name in reversed(IDS[:2])))
    assert done(stepped) == [
        "open fine",
        "step scaled to nothing",
        "probe scaled to nothing: turned away",
        "open fine",
        "probe first",
    ]
