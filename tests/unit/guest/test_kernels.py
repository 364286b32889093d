"""Which kernel ``--kernel`` names, and what is said where there is none."""

import platform
from pathlib import Path

import pytest

from proxylab.capability import Capability
from proxylab.cli.doctor import Guest, doctor_lines
from proxylab.cli.kernels import kernels_lines
from proxylab.errors import CapabilityError
from proxylab.guest.kernels import Kernel, find_kernel, known_kernels

OWN = Kernel("/cache/7.2.11/linux", "7.2.11")
DEBIANS = Kernel("/usr/bin/linux.uml", "6.1.176", "/usr/lib/uml/modules")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without user-mode Linux; returns its folder of programs, which is also the parent of its cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path


def program(path: Path, release: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {release}\n", encoding="ascii")
    path.chmod(0o755)
    return path


def test_without_a_kernel_the_error_says_how_to_get_one(bare: Path) -> None:
    with pytest.raises(CapabilityError, match=r"`proxylab kernels --obtain`, or 'apt-get install user-mode-linux'"):
        find_kernel("uml")
    assert kernels_lines("6.18.0", tuple(known_kernels()))[1:] == [
        "`proxylab kernels --obtain` builds one that has everything that labs use"
    ]


def test_a_built_kernel_comes_before_the_one_on_path(bare: Path) -> None:
    program(bare / "linux.uml", "6.1.176")
    found = find_kernel("uml")
    assert found is not None
    assert found.release == "6.1.176"
    built = program(bare / "proxylab/kernels/7.2.11-0123/linux", "7.2.11")
    assert find_kernel("uml") == Kernel(str(built), "7.2.11")
    assert [each.release for each in known_kernels()] == ["7.2.11", "6.1.176"]


def test_the_host_s_kernel_is_no_guest_s() -> None:
    assert find_kernel("host") is None


@pytest.mark.parametrize("release", ["linux-7", "", "usage: cat"])
def test_a_program_that_is_no_kernel_is_refused(bare: Path, release: str) -> None:
    with pytest.raises(CapabilityError, match="it is no user-mode Linux"):
        find_kernel(str(program(bare / "cat", release)))


def test_a_path_without_a_program_is_refused(bare: Path) -> None:
    with pytest.raises(CapabilityError, match="No such file"):
        find_kernel(str(bare / "none"))


def test_modules_need_modprobe(bare: Path) -> None:
    kernel = program(bare / "bin/linux.uml", "6.1.176")
    modules = bare / "lib/uml/modules"
    (modules / "6.1.176").mkdir(parents=True)
    (modules / "6.1.176/modules.dep").touch()
    program(bare / "modprobe", "")
    found = find_kernel(str(kernel))
    assert found == Kernel(str(kernel), "6.1.176", str(modules))
    assert not found.has_nftables


def test_other_processors_have_no_user_mode_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(CapabilityError, match="x86-64 only"):
        find_kernel("uml")


@pytest.mark.parametrize(
    ("release", "ends"), [("6.1.176", False), ("6.15.9", False), ("6.16.0-rc1", True), ("7.3.4", True)]
)
def test_processes_end_with_a_killed_guest_from_6_16_on(release: str, ends: bool) -> None:
    assert Kernel("/linux", release).ends_its_processes is ends


def test_the_list_names_what_debian_s_kernel_skips() -> None:
    lines = kernels_lines("6.18.0", (OWN, DEBIANS), 200)
    assert lines[0] == "host  6.18.0  this machine's"
    assert lines[1] == "uml   7.2.11  /cache/7.2.11/linux"
    assert lines[2].startswith("      6.1.176  /usr/bin/linux.uml: no nf_tables for IP")
    assert len(lines) == 3


def test_the_doctor_says_what_a_guest_adds() -> None:
    lacking = Capability(name="SCTP sockets", found="no", works=False, cost="skips", cure="another kernel")
    assert doctor_lines(None, [lacking], 200, Guest("7.2.11", ("SCTP sockets",)))[-1] == (
        "labs with --kernel uml run on kernel 7.2.11 and have them: SCTP sockets"
    )
    assert "--kernel" not in doctor_lines(None, [lacking], 200, None)[-1]
