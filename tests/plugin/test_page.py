"""``--lab-report``: the page of a run, whoever of pytest's processes ran its probes."""

import re
from pathlib import Path

import pytest
from plugin_project import Project

PROBE = re.compile(r'<details class="probe".*?data-verdict="(\w+)".*?<span class="name">([^<]*)<', re.DOTALL)


def probes(project: Project, file: str = "report.html") -> list[tuple[str, str]]:
    """The verdict and the name of each probe on the page, in order."""
    text = (project.pytester.path / file).read_text()
    return [(verdict, name) for verdict, name in PROBE.findall(text)]


def test_every_probe_is_on_the_page_in_the_order_of_the_items(project: Project) -> None:
    project.scenario("b.lab.yaml", "holds", "fails as ever", metadata=", tags: [snat]")
    project.scenario("c.lab.yaml", "skips", "doubts")
    result = project.run("--lab-report", "report.html")
    result.stdout.fnmatch_lines([f"report: {project.pytester.path}/report.html"])
    assert probes(project) == [
        ("pass", "holds"),
        ("fail", "fails as ever"),
        ("skip", "skips"),
        ("inconclusive", "doubts"),
    ]
    text = (project.pytester.path / "report.html").read_text()
    assert 'data-tags="snat"' in text
    assert "the packet took another way" in text


def test_what_kept_a_probe_from_being_judged_is_on_the_page(project: Project) -> None:
    project.scenario("a.lab.yaml", "one", name="lacking")
    project.scenario("b.lab.yaml", "two", name="refused")
    foreseen = project.scenario("c.lab.yaml", "three", name="refused")
    said = '  except: [{when: {mode: iptables}, engineFails: "line 7 failed", because: a bug}]\n  probes:\n'
    foreseen.write_text(foreseen.read_text().replace("  probes:\n", said))
    project.run("--lab-report", "report.html")
    assert probes(project) == [("skip", "one"), ("fail", "two"), ("pass", "three")]
    text = (project.pytester.path / "report.html").read_text()
    assert "needs user namespaces; ask an administrator for them" in text
    assert "iptables-restore: line 7 failed" in text
    assert "the engine fails as c.lab.yaml:9:12 foresees: a bug" in text


@pytest.mark.parametrize("distribution", ["load", "loadfile"])
def test_workers_hand_their_probes_to_the_one_who_writes(project: Project, distribution: str) -> None:
    for number in range(4):
        project.scenario(f"{number}.lab.yaml", f"holds {number}", f"fails {number}", f"stands {number}")
    result = project.run("-n", "2", "--dist", distribution, "--lab-report", "deep/report.html")
    result.assert_outcomes(passed=8, failed=4)
    assert [name for _, name in probes(project, "deep/report.html")] == [
        f"{word} {number}" for number in range(4) for word in ("holds", "fails", "stands")
    ]


def test_engines_are_columns(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds")
    project.run("--lab-report", "r.html", "--lab-engine", "embedded/iptables", "--lab-engine", "kube-proxy/nftables")
    text = (project.pytester.path / "r.html").read_text()
    assert re.findall(r'<th scope="col" data-engine="([^"]*)"', text) == ["embedded/iptables", "kube-proxy/nftables"]
    assert [name for _, name in probes(project, "r.html")] == ["holds", "holds"]


def test_probes_of_a_python_test_stand_below_its_name(project: Project) -> None:
    project.scenario("x.lab.yaml", "never sent")
    project.pytester.makepyfile(
        test_python="""
        import pytest

        @pytest.mark.lab("x.lab.yaml")
        def test_twice(lab):
            for name in ("holds here", "fails there"):
                lab.probe("client", to={"service": "echo", "via": "clusterIP"}, name=name,
                          expect={"outcome": "delivered", "source": "preserved"})
        """
    )
    project.run("test_python.py", "--lab-report", "report.html")
    assert probes(project) == [("pass", "holds here"), ("fail", "fails there")]
    text = (project.pytester.path / "report.html").read_text()
    assert "<h2>test_python.py</h2>" in text
    assert '<span class="case">test_twice</span>' in text


def test_of_what_ran_again_the_last_run_counts(project: Project) -> None:
    pytest.importorskip("pytest_rerunfailures")
    project.scenario("x.lab.yaml", "holds", "fails to hold")
    project.run("--reruns", "2", "--lab-report", "report.html")
    assert probes(project) == [("pass", "holds"), ("fail", "fails to hold")]


def test_a_page_that_cannot_be_written_ends_no_run(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds")
    (project.pytester.path / "full").write_text("a file where a directory should be")
    result = project.run("--lab-report", "full/report.html")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["the report could not be written: *"])


def test_who_asks_for_no_page_gets_none(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds")
    project.run()
    assert not list(Path(project.pytester.path).rglob("*.html"))
