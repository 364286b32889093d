"""A run by pytest says which binary ran: at its end, and in the properties of each item."""

from xml.etree import ElementTree

import pytest
from kube_proxies import identity
from plugin_project import Project

from proxylab.report.html import read_page

WORDS = "kube-proxy v1.37.2: a test; SHA-256 0123456789ab"
REAL = ("--lab-engine=kube-proxy/iptables", "--lab-engine=kube-proxy/nftables", "--lab-engine=embedded/iptables")


@pytest.mark.parametrize("options", [(), ("-q",), ("-qq",), ("-n2",)], ids=["", "quiet", "quieter", "xdist"])
def test_one_line_names_a_binary_with_its_engines(project: Project, options: tuple[str, ...]) -> None:
    project.scenario("x.lab.yaml", "one", "two")
    result = project.run(*REAL, *options)
    result.assert_outcomes(passed=6) if options != ("-qq",) else None
    (line,) = [line for line in result.outlines if WORDS in line]
    assert sorted(line.partition(": ")[0].split(", ")) == ["kube-proxy/iptables", "kube-proxy/nftables"]


def test_embedded_engines_have_none(project: Project) -> None:
    project.scenario("x.lab.yaml", "one")
    assert "SHA-256" not in project.run().stdout.str()


def test_junit_has_it_in_the_properties_of_each_item(project: Project) -> None:
    project.scenario("x.lab.yaml", "one")
    project.run(*REAL, "--junit-xml=junit.xml", "-o", "junit_family=xunit1")
    cases = ElementTree.parse(project.pytester.path / "junit.xml").iter("testcase")
    found = [{each.get("name"): each.get("value") for each in case.iter("property")} for case in cases]
    assert [each["engine"] for each in found if "binary" not in each] == ["embedded/iptables"]
    real = [each for each in found if "binary" in each]
    assert {(each["binary"], each["binary_sha256"]) for each in real} == {(WORDS, identity("").digest)}


def test_the_page_has_it(project: Project) -> None:
    project.scenario("x.lab.yaml", "one")
    project.run(*REAL, "--lab-report=page.html")
    text = (project.pytester.path / "page.html").read_text()
    assert f"<dt>kube-proxy/iptables, kube-proxy/nftables</dt><dd>{WORDS}</dd>" in text
    entries, _ = read_page(text)
    assert {each.heading.engine: each.heading.binary for each in entries} == {
        "kube-proxy/iptables": WORDS,
        "kube-proxy/nftables": WORDS,
        "embedded/iptables": "",
    }
