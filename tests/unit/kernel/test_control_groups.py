"""Where the control group of commands lies, and what is written there, on files in place of a kernel's hierarchies."""

from pathlib import Path

import pytest
from golden_words import Told

from proxylab.kernel.sandbox.control_groups import (
    Bounds,
    ControlGroup,
    bounds_here,
    enter,
    find_groups,
    in_words,
    remove,
)

BOUNDS = Bounds(16_384, 3 << 30)


def mounts(folder: Path, *lines: str) -> str:
    """The text of /proc/self/mountinfo with these mounts below ``folder``: KIND ROOT POINT OPTIONS."""
    text = "22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw\n"
    for line in lines:
        kind, root, point, options = line.split()
        text += f"31 23 0:28 {root} {folder / point} rw,nosuid shared:4 master:2 - {kind} {kind} {options}\n"
    return text


def groups_of(folder: Path, membership: str, *lines: str) -> dict[str, tuple[int, str]]:
    """The version and the folder of the group that bounds each controller."""
    return {
        name: (group.version, str(group.folder.relative_to(folder)))
        for group in find_groups(mounts(folder, *lines), membership)
        for name in group.controllers
    }


def test_in_version_1_it_lies_below_the_lab_s_own_group_of_each_hierarchy(tmp_path: Path) -> None:
    assert groups_of(
        tmp_path,
        "9:name=systemd:/\n8:pids:/\n4:memory:/jobs/one\n0::/\n",
        "cgroup / pids rw,pids",
        "cgroup / memory rw,memory",
        "cgroup2 / unified rw,nsdelegate",
    ) == {"pids": (1, "pids/proxylab"), "memory": (1, "memory/jobs/one/proxylab")}


def test_hierarchies_of_version_1_may_be_one(tmp_path: Path) -> None:
    (group,) = find_groups(mounts(tmp_path, "cgroup / both rw,memory,pids"), "4:memory,pids:/a\n")
    assert (group.folder, set(group.controllers)) == (tmp_path / "both/a/proxylab", {"memory", "pids"})


def test_a_mount_of_a_part_shows_the_groups_of_that_part(tmp_path: Path) -> None:
    membership = "8:pids:/docker/abc/job\n4:memory:/docker/other\n"
    lines = ("cgroup /docker/abc pids rw,pids", "cgroup /docker/abc memory rw,memory")
    assert groups_of(tmp_path, membership, *lines) == {"pids": (1, "pids/job/proxylab")}


@pytest.mark.parametrize(
    ("handed", "folder"),
    [
        ({"user.slice/user-0.slice": "cpu memory pids", "user.slice": "memory pids"}, "user.slice/user-0.slice"),
        ({"user.slice/user-0.slice": "pids", "user.slice": "memory pids"}, "user.slice"),
        ({"user.slice": "memory pids", ".": "cpu memory pids"}, "user.slice"),
        ({".": "cpuset cpu io memory pids"}, "."),
    ],
)
def test_in_version_2_it_lies_below_the_nearest_group_that_hands_both_on(
    handed: dict[str, str], folder: str, tmp_path: Path
) -> None:
    (tmp_path / "cgroup/user.slice/user-0.slice/session-1.scope").mkdir(parents=True)
    for name, controllers in handed.items():
        (tmp_path / "cgroup" / name / "cgroup.subtree_control").write_text(f"{controllers}\n")
    found = groups_of(tmp_path, "0::/user.slice/user-0.slice/session-1.scope\n", "cgroup2 / cgroup rw")
    assert found == dict.fromkeys(("pids", "memory"), (2, str(Path("cgroup", folder, "proxylab"))))


@pytest.mark.parametrize(
    ("membership", "handed"),
    [
        ("0::/job\n", ""),  # a container's group has processes, so that it can hand nothing on
        ("0::/../../job\n", "memory pids"),  # outside of the cgroup namespace
        ("8:pids:/job\n", "memory pids"),  # a kernel without version 2 has no such line
        ("", "memory pids"),
    ],
)
def test_there_is_none_where_nothing_is_handed_on(membership: str, handed: str, tmp_path: Path) -> None:
    (tmp_path / "cgroup/job").mkdir(parents=True)
    (tmp_path / "cgroup/cgroup.subtree_control").write_text(handed)
    assert groups_of(tmp_path, membership, "cgroup2 / cgroup rw") == {}


@pytest.mark.parametrize("missing", ["memory", "pids"])
def test_one_controller_may_be_handed_on_alone(missing: str, tmp_path: Path) -> None:
    (tmp_path / "cgroup").mkdir()
    (one,) = {"memory", "pids"} - {missing}
    (tmp_path / "cgroup/cgroup.subtree_control").write_text(one)
    assert groups_of(tmp_path, "0::/\n", "cgroup2 / cgroup rw") == {one: (2, "cgroup/proxylab")}


def test_the_process_enters_a_group_that_has_its_limits_first(tmp_path: Path) -> None:
    old = ControlGroup(1, tmp_path / "old", ("pids", "memory"))
    new = ControlGroup(2, tmp_path / "new", ("memory", "pids"))
    for group, swap in ((old, "memory.memsw.limit_in_bytes"), (new, "memory.swap.max")):
        group.folder.mkdir()
        (group.folder / swap).touch()  # the kernel makes it where it counts swap
    enter((old, new), BOUNDS)
    assert {path.name: path.read_text() for path in old.folder.iterdir()} == {
        "pids.max": "16384",
        "memory.limit_in_bytes": str(3 << 30),
        "memory.memsw.limit_in_bytes": str(3 << 30),
        "cgroup.procs": "0",
    }
    assert {path.name: path.read_text() for path in new.folder.iterdir()} == {
        "pids.max": "16384",
        "memory.max": str(3 << 30),
        "memory.swap.max": "0",
        "cgroup.procs": "0",
    }


def test_a_kernel_that_counts_no_swap_has_no_file_for_it(tmp_path: Path) -> None:
    enter([ControlGroup(2, tmp_path / "made", ("memory",))], BOUNDS)
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"memory.max", "cgroup.procs"}


def test_a_hierarchy_that_cannot_be_written_is_an_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        enter([ControlGroup(1, tmp_path / "file" / "proxylab", ("pids",))], BOUNDS)


def test_only_an_empty_group_is_removed(tmp_path: Path) -> None:
    groups = [ControlGroup(1, tmp_path / name, ("pids",)) for name in ("empty", "used", "gone")]
    for group in groups[:2]:
        group.folder.mkdir()
    (groups[1].folder / "process").touch()
    remove(groups)
    assert [each.name for each in tmp_path.iterdir()] == ["used"]


def test_commands_leave_a_quarter_of_the_memory_to_the_machine() -> None:
    assert bounds_here(100, "MemTotal:       24731708 kB\nMemFree:  1 kB\n") == Bounds(100, 24731708 * 3 // 4 * 1024)


def test_the_words_say_what_bounds_what(told: Told) -> None:
    assert in_words([ControlGroup(2, Path("/a"), ("pids", "memory"))], BOUNDS, "") == told()
    assert in_words([ControlGroup(1, Path("/a"), ("pids",))], BOUNDS, "why") == told()
    assert in_words((), BOUNDS, "why") == told()
