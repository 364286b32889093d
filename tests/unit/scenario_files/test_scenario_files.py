"""The files of ``scenarios/``: what each must say, how names read in a report, and over which families they dial."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from scenario_index import CHAPTERS, SCENARIOS, places

from proxylab.addresses import Family
from proxylab.cluster.configuration import Mode
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import AddressTarget, Probe, ServiceTarget, Stream
from proxylab.scenario.words import Outcome

PLACES = places()
BOTH = frozenset(Family)
ONE_FAMILY_AT_A_TIME = {
    "masquerade/once-through-a-tunnel": "a tunnel has one family, and its conntrack table is the subject",
    "steps/metric-of-services-without-local-endpoint": "older kube-proxies have one gauge for both families",
    "ingress/client-address": "nginx reads its configuration anew for each family, in a lab of its own",
    "ingress/hosts-and-paths": "nginx reads its configuration anew for each family, in a lab of its own",
    "bugs/73157-external-ip-of-the-wrong-family": "in a dual-stack cluster no address is of the wrong family",
}
"""Scenarios that dial both families, but not in one dual-stack cluster, and why."""

AXIS_FAMILY = re.compile(r"^ +(matrix: \{.*)?\bfamily: \[IPv", re.MULTILINE)
LONGEST_NAME = 80
VAGUE = re.compile(r"\b(?:whoever|whom|somebody|nobody|anybody|everybody|someone|anyone)\b", re.IGNORECASE)
REFERS_TO_A_NEIGHBOUR = re.compile(r"^(?:so|nor|and|it|its|they|their|he|that|this|another one) ", re.IGNORECASE)


@cache
def written(place: str) -> Scenario:
    return load_scenario(SCENARIOS / f"{place}.lab.yaml")


def probes_of(scenario: Scenario) -> tuple[Probe, ...]:
    return (*scenario.probes, *(probe for step in scenario.steps for probe in step.probes))


def names_in(scenario: Scenario) -> list[str]:
    return [*(step.name for step in scenario.steps), *(probe.name for probe in probes_of(scenario))]


def dialled(case: Scenario, sent: Probe | Stream) -> Family:
    target = sent.target
    if isinstance(target, AddressTarget | ServiceTarget) and target.address is not None:
        return Family.of(target.address)
    return target.family or case.network.families[0]


def cases_of(place: str) -> Iterator[Scenario]:
    yield from (each for mode in Mode for each in cases(written(place), mode))


def families_of(place: str) -> dict[frozenset[Family], set[Family]]:
    """The families that a scenario dials, by those that its cluster has."""
    found: dict[frozenset[Family], set[Family]] = {}
    for case in cases_of(place):
        over = {dialled(case, probe) for probe in probes_of(case)} | {dialled(case, each) for each in case.streams}
        found.setdefault(frozenset(case.network.families), set()).update(over)
    return found


def is_of_ipv4_alone(place: str) -> bool:
    return "IPv4 alone" in text_of(place)


def text_of(place: str) -> str:
    return (SCENARIOS / f"{place}.lab.yaml").read_text(encoding="utf-8")


# To load all scenarios takes a second, and each worker of pytest-xdist collects this file.
OVER_THE_AXIS_FAMILY = [place for place in PLACES if AXIS_FAMILY.search(text_of(place))]


@pytest.mark.parametrize("place", PLACES)
def test_a_name_is_a_title_that_stands_alone(place: str) -> None:
    scenario = written(place)
    names = names_in(scenario)
    assert [name for name in (scenario.name, *names) if len(name) > LONGEST_NAME] == []
    assert [name for name in names if REFERS_TO_A_NEIGHBOUR.match(name) or len(name.split()) < 4] == []
    assert [name for name, count in Counter(names).items() if count > 1] == []


@pytest.mark.parametrize("place", PLACES)
def test_names_and_descriptions_say_who(place: str) -> None:
    scenario = written(place)
    texts = (scenario.description, *names_in(scenario))
    assert [text for text in texts if VAGUE.search(text)] == []


@pytest.mark.parametrize("place", PLACES)
def test_a_scenario_says_what_it_proves_and_where_to_read_on(place: str) -> None:
    scenario = written(place)
    assert scenario.description.endswith(".")
    assert scenario.links


@pytest.mark.parametrize("place", PLACES)
def test_a_scenario_is_called_as_its_file_and_says_where_packets_end(place: str) -> None:
    scenario = written(place)
    assert scenario.name == place.replace("/", "-")
    ends = {Outcome.REJECTED, Outcome.DROPPED, Outcome.UNTRANSLATED}
    nowhere = [each.name for each in probes_of(scenario) if each.expect.outcome in ends and each.expect.at is None]
    assert nowhere == []


def test_each_folder_is_a_chapter_of_the_index() -> None:
    assert {place.partition("/")[0] for place in PLACES} == set(CHAPTERS)


@pytest.mark.parametrize("place", PLACES)
def test_a_scenario_dials_both_families_in_one_cluster_or_says_why_not(place: str) -> None:
    found = families_of(place)
    if is_of_ipv4_alone(place):
        assert found == {frozenset({Family.IPV4}): {Family.IPV4}}
    elif place == "families/ipv6-first":
        assert set().union(*found.values()) == {Family.IPV6}
    elif place in ONE_FAMILY_AT_A_TIME:
        assert found == {frozenset({family}): {family} for family in Family}
    else:
        assert found[BOTH] == set(Family)


def test_the_axis_family_is_found_in_the_text() -> None:
    assert [place for place in PLACES if "family" in written(place).matrix.axes] == OVER_THE_AXIS_FAMILY


@pytest.mark.parametrize("place", OVER_THE_AXIS_FAMILY)
def test_the_axis_family_reaches_every_probe_that_names_no_family(place: str) -> None:
    free = {
        each.name
        for each in probes_of(written(place))
        if isinstance(each.target, ServiceTarget) and (each.target.family, each.target.address) == (None, None)
    }
    over: dict[str, set[Family]] = {name: set() for name in free}
    for case in cases_of(place):
        for sent in probes_of(case):
            last = case.case.words(sent.name).rpartition(": ")[2]
            if last in free:
                over[last].add(dialled(case, sent))
    assert {name: families for name, families in over.items() if families != set(Family)} == {}


def test_clusters_of_either_family_alone_and_of_both_show_the_same() -> None:
    found = families_of("families/single-stack-and-dual-stack")
    assert set(found) == {frozenset({Family.IPV4}), frozenset({Family.IPV6}), BOTH}
