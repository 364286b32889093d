"""``--lab-report``: the page of a run, also of probes that xdist's workers ran."""

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


# By load, items of one file are on two workers, which loadfile never does.
@pytest.mark.parametrize("distribution", ["load", pytest.param("loadfile", marks=pytest.mark.thorough)])
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


RED = """
import pytest

@pytest.fixture
def broken():
    raise RuntimeError("the fixture broke")

@pytest.fixture
def untidy():
    yield
    raise RuntimeError("nothing was put in order")

def test_holds():
    pass

def test_says_no():
    assert 1 + 1 == 3, "the sum is wrong"

def test_never_runs(broken):
    pass

def test_leaves_a_mess(untidy):
    pass

@pytest.mark.xfail(reason="a known bug")
def test_is_known_to_fail():
    assert False

@pytest.mark.lab("x.lab.yaml")
def test_with_a_lab(lab):
    lab.probe("client", to={"service": "echo", "via": "clusterIP"}, name="holds here",
              expect={"outcome": "delivered", "source": "preserved"})
    assert lab.scenario.name == "other", "there is another lab"
"""


UNTIDY = """
import pytest

@pytest.fixture(autouse=True)
def untidy(request):
    yield
    assert request.node.name != "holds", "nothing was put in order"
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "two workers"])
def test_whatever_fails_in_python_is_on_the_page_with_its_message(project: Project, workers: tuple[str, ...]) -> None:
    project.scenario("x.lab.yaml", "never sent")
    project.pytester.makepyfile(test_red=RED)
    result = project.run("test_red.py", "--lab-report", "report.html", *workers)
    result.assert_outcomes(passed=2, failed=2, errors=2, xfailed=1)
    assert probes(project) == [
        ("fail", "the test failed"),
        ("fail", "error at setup"),
        ("fail", "error at teardown"),
        ("pass", "holds here"),
        ("fail", "the test failed"),
    ]
    text = (project.pytester.path / "report.html").read_text()
    for case in ("test_says_no", "test_never_runs", "test_leaves_a_mess", "test_with_a_lab"):
        assert f'<span class="case">{case}</span>' in text
    for message in ("the sum is wrong", "the fixture broke", "nothing was put in order", "there is another lab"):
        assert re.search(f'<span class="brief">[^<]*{message}', text), message


def test_what_fails_beside_its_verdict_is_on_the_page_and_no_verdict_twice(project: Project) -> None:
    file = project.scenario("sub/a.lab.yaml", "fails", "doubts", "holds")
    file.with_name("conftest.py").write_text(UNTIDY)
    project.run("--lab-report", "report.html")
    assert probes(project) == [
        ("fail", "fails"),
        ("inconclusive", "doubts"),
        ("pass", "holds"),
        ("fail", "error at teardown"),
    ]


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "two workers"])
def test_what_cannot_be_collected_is_on_the_page(project: Project, workers: tuple[str, ...]) -> None:
    project.pytester.makepyfile(test_unreadable="import nothing_of_that_name")
    (project.pytester.path / "bad.lab.yaml").write_text("kind: Scenario\n")
    project.run("--lab-report", "report.html", *workers)
    assert sorted(probes(project)) == [("fail", "error at collection")] * 2
    text = (project.pytester.path / "report.html").read_text()
    assert "nothing_of_that_name" in text
    assert "<h2>bad.lab.yaml</h2>" in text


def test_a_test_whose_worker_crashes_is_on_the_page(project: Project) -> None:
    project.pytester.makepyfile(test_crash="import os\n\ndef test_crashes():\n    os._exit(1)\n")
    project.run("-n", "1", "--lab-report", "report.html")
    assert probes(project) == [("fail", "test_crash.py::test_crashes")]


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
    result.stdout.fnmatch_lines(["cannot write *"])


def test_who_asks_for_no_page_gets_none(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds")
    project.run()
    assert not list(Path(project.pytester.path).rglob("*.html"))
