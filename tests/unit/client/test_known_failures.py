"""Failures of engines that ``spec.except`` foresees, compared with what the engines do."""

import pytest
from golden_words import Told

from proxylab.client.open_labs import open_or_foresee
from proxylab.errors import CapabilityError, EngineError
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario
from proxylab.verdict.model import KnownFailure

TEXT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: foreseen}
spec:
  nodes: {node-a: {}}
  pods: {echo: {ports: [8080]}, client: {}}
  except:
  - {when: {version: "<1.33.6"}, engineFails: Interface does not exist, because: a bug}
  probes:
  - {name: one, from: client, to: {pod: echo}, expect: {outcome: delivered, source: preserved}}
"""
FAILS = parse_scenario(TEXT, "f")
LOG = "it starts\nadd rule … iif != cli*: Error: Interface does not exist\nit will try again"


def refusing(_: Scenario) -> str:
    raise EngineError("node-a", "kube-proxy could not load its rules", LOG)


def programming(_: Scenario) -> str:
    return "a lab"


def test_an_engine_that_fails_in_the_words_that_are_foreseen_is_as_it_should_be(told: Told) -> None:
    foreseen = open_or_foresee(refusing, FAILS)
    assert isinstance(foreseen, KnownFailure)
    assert str(foreseen) == told()


def test_one_that_fails_in_other_words_is_an_error_that_says_so(told: Told) -> None:
    other = parse_scenario(TEXT.replace("Interface does not exist", "No such set"), "f")
    with pytest.raises(EngineError) as caught:
        open_or_foresee(refusing, other)
    assert caught.value.what == told()
    assert caught.value.log == LOG


def test_one_that_does_not_fail_is_an_error() -> None:
    with pytest.raises(EngineError, match=r"it programmed what f:8:5 says it cannot \(a bug\); narrow that exception"):
        open_or_foresee(programming, FAILS)


def test_where_nothing_is_foreseen_all_is_as_ever() -> None:
    plain = parse_scenario(TEXT.replace("  except:\n", "").replace(TEXT.splitlines(keepends=True)[7], ""), "f")
    assert open_or_foresee(programming, plain) == "a lab"
    with pytest.raises(EngineError, match="could not load its rules\n"):
        open_or_foresee(refusing, plain)


def test_what_a_machine_lacks_is_no_failure_of_an_engine() -> None:
    def lacking(_: Scenario) -> str:
        raise CapabilityError("nft", "install it")

    with pytest.raises(CapabilityError):
        open_or_foresee(lacking, FAILS)
