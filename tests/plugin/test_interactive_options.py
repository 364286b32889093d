"""The options of pytest with which a user looks at a failed item."""

from pathlib import Path

import pytest
from plugin_project import Project

KEPT = 8 * 3600


@pytest.fixture(autouse=True)
def empty_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_a_failed_item_s_lab_stays_and_the_next_item_gets_another(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds", "fails to hold", "holds too", name="shop")
    result = project.run("--lab-keep")
    result.assert_outcomes(passed=2, failed=1)
    assert [event for event in project.events() if event.startswith(("open", "stay"))] == [
        "open shop",
        f"stay shop {KEPT}",
        "open shop",
    ]
    result.stdout.fnmatch_lines(
        ["*the lab*", "the lab is kept as shop for 8h; try", "  proxylab probe client echo --lab shop"]
    )


def test_what_is_undecided_is_kept_too_and_what_is_skipped_is_not(project: Project) -> None:
    project.scenario("x.lab.yaml", "doubts it", "skips it", name="shop")
    project.run("--lab-keep")
    assert [event for event in project.events() if event.startswith("stay")] == [f"stay shop {KEPT}"]


def test_a_python_test_s_lab_is_kept_whatever_fails_in_it(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds", name="shop")
    project.pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.lab("x.lab.yaml")
        def test_it(lab):
            assert lab.scenario.name == "market"
        """
    )
    result = project.run("test_it.py", "--lab-keep")
    result.assert_outcomes(failed=1)
    assert f"stay shop {KEPT}" in project.events()
    result.stdout.fnmatch_lines(["the lab is kept as shop for 8h; try"])


def test_the_number_of_kept_labs_is_limited(project: Project) -> None:
    project.scenario("x.lab.yaml", *(f"fails {number}" for number in range(12)), name="shop")
    result = project.run("--lab-keep")
    assert len([event for event in project.events() if event.startswith("stay")]) == 10
    result.stdout.fnmatch_lines(["the lab is not kept: 10 are kept already; `proxylab down --all` ends them"])


@pytest.mark.parametrize("option", [("--lab-pause-on-fail",), ("--lab-shell", "client")])
def test_workers_have_no_terminal_to_wait_at(project: Project, option: tuple[str, ...]) -> None:
    project.scenario("x.lab.yaml", "holds")
    result = project.run(*option, "-n", "1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option[0]}: xdist workers have no terminal; leave out -n*"])


def test_every_item_leaves_its_frames(project: Project) -> None:
    project.scenario("deep/x.lab.yaml", "holds", "fails to hold")
    project.run("--lab-pcap", "--junitxml=junit.xml")
    left = {file.name for file in (project.pytester.path / ".proxylab/pcap").glob("*.pcapng")}
    assert left == {"deep-x.lab.yaml-holds.pcapng", "deep-x.lab.yaml-fails-to-hold.pcapng"}
    assert 'name="pcap" value=".proxylab/pcap/deep-x.lab.yaml-holds.pcapng"' in Path("junit.xml").read_text()
    project.run("--lab-pcap", "--lab-pcap-dir", "elsewhere")
    assert len(list((project.pytester.path / "elsewhere").glob("*.pcapng"))) == 2


def test_nothing_is_kept_without_an_option(project: Project) -> None:
    project.scenario("x.lab.yaml", "fails to hold")
    project.run()
    assert not [event for event in project.events() if event.startswith(("stay", "capture"))]
    assert not (project.pytester.path / ".proxylab/pcap").exists()
