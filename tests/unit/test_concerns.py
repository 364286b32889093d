"""``./dev test`` leaves out the tests of what no changed file concerns, and knows what changed."""

import subprocess
from pathlib import Path

import pytest
from concerns import CONCERNS, ROOT, base_of, changed_since, is_concerned, of_page, unconcerned


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
        ("lab/proxylab/report/html/page.css", {"browser"}),
        ("lab/proxylab/scenario/schema.json", {"editor"}),
        ("lab/proxylab/engines/modes.py", set()),
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
    for file in ("docs/tutorial.md", "lab/proxylab/features/merge/verb.py", "lab/proxylab/engines/modes.py"):
        assert not is_concerned(paths, [file])
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_path_exists_and_every_marker_has_tests() -> None:
    assert [path for paths in CONCERNS.values() for path in paths if not (ROOT / path).exists()] == []
    marked = "\n".join(each.read_text() for each in (ROOT / "tests").rglob("test_*.py"))
    assert [concern for concern in CONCERNS if f"pytest.mark.{concern}" not in marked] == []
