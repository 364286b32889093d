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


EXPECTING = """\
  streams:
    queries: {from: client, to: {service: echo, via: clusterIP}}
  steps:
  - {name: one backend, expect: {queries: {lost: 0}}}
  - name: fails when it is gone
    change: {pods: {client: {ready: false}}}
    expect: {queries: {lost: 0}}
    probes:
    - {name: turned away, from: client, to: {service: echo, via: clusterIP}, expect: {outcome: rejected}}
"""


@pytest.fixture
def streaming(project: Project) -> Project:
    path = project.scenario("x.lab.yaml", "first")
    path.write_text(path.read_text().replace("---\n", f"{EXPECTING}---\n"))
    return project


def test_a_step_that_expects_something_is_an_item_behind_its_probes(streaming: Project) -> None:
    result = streaming.run("--collect-only", "-q")
    names = ["first", "one backend", "fails when it is gone: turned away", "fails when it is gone"]
    assert result.outlines[:4] == [f"x.lab.yaml::{name}" for name in names]


def test_a_step_is_judged_when_it_ends(streaming: Project) -> None:
    result = streaming.run()
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["x.lab.yaml:*: FAIL: fails when it is gone"])
    assert [event for event in streaming.events() if event.startswith(("open", "step", "probe", "conclude"))] == [
        "open fine",
        "probe first",
        "step one backend",
        "conclude one backend",
        "step fails when it is gone",
        "probe fails when it is gone: turned away",
        "conclude fails when it is gone",
    ]


def test_one_step_alone_judges_none_before_it(streaming: Project) -> None:
    streaming.run("x.lab.yaml::fails when it is gone").assert_outcomes(failed=1)
    events = [event for event in streaming.events() if event.startswith(("step", "probe", "conclude"))]
    assert events == ["step one backend", "step fails when it is gone", "conclude fails when it is gone"]
