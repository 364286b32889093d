"""``./dev test`` leaves out the tests of what no changed file concerns, and knows what changed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from changes import ROOT, base_of, changed_files, changed_scenarios, changed_since, names_a_changed_scenario
from concerns import CONCERNS, EACH, Marks, is_concerned, of_page, of_scenario, unconcerned


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROXYLAB_TESTS_SINCE", raising=False)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose branch main has two commits."""
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    for name in ("first", "second"):
        commit(tmp_path, name)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    own = ["-c", "user.name=us", "-c", "user.email=us@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", folder, *own, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, name: str) -> None:
    (folder / name).write_text(name)
    git(folder, "add", name)
    git(folder, "commit", "--quiet", f"--message={name}")


def test_a_branch_is_compared_with_where_it_left_main(clone: Path) -> None:
    left = git(clone, "rev-parse", "HEAD")
    git(clone, "checkout", "--quiet", "-b", "ours")
    for name in ("third", "a file"):
        commit(clone, name)
    (clone / "not added").write_text("")
    (clone / "first").write_text("changed")
    assert base_of(clone) == left
    assert sorted(changed_since(left, clone)) == ["a file", "first", "not added", "third"]


def test_main_is_compared_with_its_last_commit_or_the_one_before(clone: Path) -> None:
    assert base_of(clone) == git(clone, "rev-parse", "HEAD^")
    (clone / "second").write_text("changed")
    assert base_of(clone) == git(clone, "rev-parse", "HEAD")


def test_a_merge_is_compared_with_main_before_it(clone: Path) -> None:
    before = git(clone, "rev-parse", "HEAD")
    git(clone, "checkout", "--quiet", "-b", "ours")
    for name in ("third", "fourth"):
        commit(clone, name)
    git(clone, "checkout", "--quiet", "main")
    git(clone, "merge", "--quiet", "--no-ff", "--message=merge", "ours")
    assert base_of(clone) == before


def test_what_a_push_began_with_can_be_named(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = git(clone, "rev-parse", "HEAD^")
    commit(clone, "third")
    monkeypatch.setenv("PROXYLAB_TESTS_SINCE", first)
    assert base_of(clone) == first
    monkeypatch.setenv("PROXYLAB_TESTS_SINCE", "0" * 40)  # what GitHub names where a push makes a branch
    assert base_of(clone) == git(clone, "rev-parse", "HEAD^")


def test_the_first_commit_has_nothing_to_compare_with(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    commit(tmp_path, "first")
    assert base_of(tmp_path) is None, "all tests run"


def test_without_a_clone_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    assert base_of(tmp_path) is None


@pytest.mark.parametrize(
    ("file", "concerned"),
    [
        ("dev", {"dev_script"}),
        ("lab/proxylab/report/html/page.css", {"browser", "command_line", "plugin", "reasons"}),
        ("lab/proxylab/scenario/schema.json", {"catalogue", "command_line", "editor", "growth"}),
        ("lab/proxylab/engines/modes.py", {"catalogue", "engines", "kube_proxy", "nftables_core", "userspace_core"}),
        ("lab/proxylab/engines/embedded/userspace/process.py", {"catalogue", "engines", "userspace_core"}),
        (
            "lab/proxylab/engines/embedded/iptables/writer.py",
            {"catalogue", "engines", "userspace_core"},
        ),
        ("lab/proxylab/verdict/causes/loss.py", {"reasons"}),
        ("lab/proxylab/verdict/flows.py", {"catalogue", "judge", "reasons"}),
        ("scenarios/clusterip/from-a-pod.lab.yaml", set()),
        ("tests/kernel/test_copies.py", {"judge"}),
        ("devices", set()),
    ],
)
def test_a_file_is_of_what_it_concerns(file: str, concerned: set[str]) -> None:
    assert {*CONCERNS} - {*unconcerned([file])} == concerned


def test_a_page_is_of_its_own_text_and_of_the_verbs_that_it_types() -> None:
    paths = of_page(ROOT / "docs/how-to/audit-a-cluster.md")
    for file in (
        "docs/how-to/audit-a-cluster.md",
        "lab/proxylab/features/audit/verb.py",
        "tests/docs/test_commands.py",
    ):
        assert is_concerned(paths, [file])
    others = ("docs/tutorial.md", "lab/proxylab/features/merge/verb.py", "lab/proxylab/engines/modes.py")
    for file in (*others, "tests/docs/test_gate_recipes.py"):
        assert not is_concerned(paths, [file])
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_run_has_the_tests_that_a_concern_names() -> None:
    marks = Marks()
    file = "tests/kernel/test_stuck_labs.py"
    for name in ("test_the_first_verb_after_a_lab_was_killed_says_so", "test_verbs"):
        assert marks.of(file, name, name) == ([] if name != "test_verbs" else ["processes"])
    file = "tests/kernel/test_standing_labs.py"
    for role, marked in (("init", ["processes"]), ("lab process", [])):
        killed = "test_nothing_is_left_after_any_process_of_a_lab_is_killed"
        assert marks.of(file, killed, f"{killed}[{role}]") == marked
    for name, marked in (("[a]", []), ("[b]", ["judge"])):
        assert marks.of("tests/kernel/attacks/test_broken_ways.py", "test_it", f"test_it{name}") == marked
    assert marks.of("tests/kernel/test_names.py", "test_it", "test_it") == []


@pytest.mark.parametrize(
    ("place", "markers", "marked"),
    [
        ("steps/scaled-to-zero", ("core", "engine_embedded", "mode_userspace"), ["userspace_core"]),
        ("userspace/large-data", ("userspace", "engine_embedded", "mode_userspace"), []),
        ("steps/scaled-to-zero", ("core", "engine_embedded", "mode_nftables"), ["nftables_core"]),
        ("clusterip/from-a-pod", ("core", "engine_embedded", "mode_nftables"), []),
        ("steps/link-failure", ("engine_embedded", "mode_iptables"), ["catalogue"]),
        ("clusterip/from-a-pod", ("core", "engine_embedded", "mode_iptables"), []),
        ("steps/rules-are-flushed", ("upstream", "engine_kube_proxy", "mode_iptables"), ["kube_proxy"]),
        ("clusterip/from-a-pod", ("upstream", "engine_kube_proxy", "mode_nftables"), []),
    ],
)
def test_scenarios_of_an_engine_are_of_its_concern(place: str, markers: tuple[str, ...], marked: list[str]) -> None:
    assert of_scenario(place, markers) == marked


def test_the_probes_of_a_changed_scenario_are_of_no_concern() -> None:
    markers = ("core", "engine_embedded", "mode_nftables")
    assert of_scenario("steps/scaled-to-zero", markers, {"steps/scaled-to-zero"}) == []


def test_what_is_said_of_a_changed_scenario_is_known_by_its_name_unless_many_changed() -> None:
    name = "test_a_mutant_turns_red[nat KUBE-SEP-*: the rule is absent (embedded/iptables): dns/external-name]"
    few = frozenset({"dns/external-name", "dns/on-a-bridge"})
    assert names_a_changed_scenario(name, few)
    assert not names_a_changed_scenario(name, few - {"dns/external-name"})
    assert not names_a_changed_scenario(name, few | {f"steps/{number}" for number in range(20)})


def test_a_scenario_has_changed_with_its_text_and_with_what_lies_in_its_folder(clone: Path) -> None:
    for name in ("dns/by-name.lab.yaml", "helm/chart.lab.yaml", "helm/manifests/chart.yaml", "helm/notes.lab.yaml"):
        (clone / "scenarios" / name).parent.mkdir(parents=True, exist_ok=True)
        commit(clone, f"scenarios/{name}")
    assert changed_scenarios(clone) == {"helm/notes"}
    (clone / "scenarios/dns/by-name.lab.yaml").write_text("changed")
    changed_files.cache_clear()
    assert changed_scenarios.__wrapped__(clone) == {"dns/by-name"}
    (clone / "scenarios/helm/manifests/chart.yaml").write_text("changed")
    changed_files.cache_clear()
    assert changed_scenarios.__wrapped__(clone) == {"dns/by-name", "helm/chart", "helm/notes"}


def test_every_path_exists_and_every_marker_has_tests() -> None:
    paths = [path for each in CONCERNS.values() for path in (*each.files, *each.tests)]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    marked = "\n".join(each.read_text() for each in (ROOT / "tests").rglob("test_*.py"))
    alone = [key for key, each in CONCERNS.items() if not each.tests and not each.of]
    assert [key for key in alone if f"pytest.mark.{key}" not in marked] == []


@pytest.mark.parametrize(("concern", "tag"), [("kube_proxy", "upstream"), ("nftables_core", "core")])
def test_every_scenario_that_a_concern_keeps_is_there(concern: str, tag: str) -> None:
    kept = CONCERNS[concern].kept
    assert [place for place in kept if tag not in (ROOT / f"scenarios/{place}.lab.yaml").read_text()] == []


def test_every_name_that_a_concern_keeps_is_that_of_a_test() -> None:
    named = [(file, name) for each in CONCERNS.values() for file, names in each.tests.items() for name in names]
    lost = [
        (file, name)
        for file, name in named
        if name != EACH
        and not re.search(rf"^(def )?{name.partition('[')[0]}( = |\()", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert lost == []


ELSEWHERE = {
    ("tests/engines/test_ipvs_in_a_guest.py", "test_both_write_the_same_rules_sets_and_virtual_servers[core]"),
    ("tests/kernel/test_scenarios_in_a_guest.py", "test_mode_ipvs_passes[rest of the core]"),
    (
        "tests/kernel/test_scenarios_in_a_guest.py",
        "test_what_many_kernels_lack_is_there[SCTP sockets-embedded/iptables]",
    ),
}
"""Cases that one concern keeps, and another has."""


@pytest.mark.thorough  # it collects for seconds; the test above finds a function that is gone
def test_every_run_has_a_case_of_each_name_that_a_concern_keeps() -> None:
    files = [file for each in CONCERNS.values() for file in each.tests]
    left_out = " and ".join(f"not {each}" for each in ("budget", "thorough", *CONCERNS))
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", left_out, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    kept = {tuple(line.split("::", 1)) for line in done.stdout.splitlines() if "::" in line}
    lost = [
        (file, name)
        for each in CONCERNS.values()
        for file, names in each.tests.items()
        for name in names
        if not any(
            found.startswith(file) and (name in (EACH, case) or case.startswith(f"{name}[")) for found, case in kept
        )
    ]
    assert len(kept) > 100
    assert {*lost} == ELSEWHERE


def test_a_row_says_what_shows_each_concern_in_every_run() -> None:
    page = (ROOT / "tests/README.md").read_text()
    assert re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE) == [*CONCERNS]
    named = {each.partition("::")[0] for each in re.findall(r"`((?:tests|scenarios|lab)/[^`]*)`", page)}
    assert [path for path in named if not (ROOT / path).exists()] == []
