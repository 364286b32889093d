"""Which kernel ``--kernel`` names, and what is said where there is none."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from golden_words import Told
from hypothesis import given
from hypothesis import strategies as st

from proxylab.capability import Capability
from proxylab.cli.doctor import Guest, doctor_lines
from proxylab.cli.kernels import kernels_lines
from proxylab.errors import CapabilityError
from proxylab.guest.debian import newest_package
from proxylab.guest.kernels import Kernel, cure_in_guest, find_kernel, known_images, known_kernels

OWN = Kernel("/cache/7.2.11/linux", "7.2.11")
DEBIANS = Kernel("/usr/bin/linux.uml", "6.1.176", "/usr/lib/uml/modules")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine_is: Callable[[str], None]) -> Path:
    """A machine without user-mode Linux; returns its folder of programs, which is also the parent of its cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    machine_is("x86_64")
    return tmp_path


def program(path: Path, release: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {release}\n", encoding="ascii")
    path.chmod(0o755)
    return path


def test_without_a_kernel_the_error_says_how_to_get_one(bare: Path, told: Told) -> None:
    with pytest.raises(CapabilityError, match=r"`proxylab kernels --obtain`, or 'apt-get install user-mode-linux'"):
        find_kernel("uml")
    assert kernels_lines("6.18.0", tuple(known_kernels()))[1:] == told()


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
    with pytest.raises(CapabilityError, match="it is no bzImage, and no user-mode Linux"):
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


def test_other_processors_have_no_guests(machine_is: Callable[[str], None]) -> None:
    machine_is("aarch64")
    with pytest.raises(CapabilityError, match="a guest's kernel for aarch64: there is none yet"):
        find_kernel("uml")


def image(path: Path, release: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f"{release} (debian-kernel@lists.debian.org) #1 SMP".encode() + b"\0"
    path.write_bytes(bytes(0x202) + b"HdrS" + bytes(8) + struct.pack("<H", 0x100) + bytes(0xF0) + text)
    return path


def test_an_image_has_its_release_in_its_header_and_its_modules_where_packages_have_them(bare: Path) -> None:
    kernel = image(bare / "boot/vmlinuz-6.1.0-56-amd64", "6.1.0-56-amd64")
    assert find_kernel(str(kernel)) == Kernel(str(kernel), "6.1.0-56-amd64", "", is_image=True)
    modules = bare / "lib/modules"
    (modules / "6.1.0-56-amd64").mkdir(parents=True)
    (modules / "6.1.0-56-amd64/modules.dep").touch()
    found = find_kernel(str(kernel))
    assert found is not None
    assert (found.modules, found.ends_its_processes) == (str(modules), True)


def test_a_kernel_of_debian_s_in_the_cache_needs_no_tool_and_is_no_user_mode_linux(bare: Path) -> None:
    for release in ("6.1.0-9-amd64", "6.1.0-56-amd64", "6.12.43+deb13-amd64"):
        image(bare / f"proxylab/kernels/debian-linux-image-{release}/vmlinuz", release)
    found = [find_kernel(f"debian:{version}") for version in ("6.1", "6.1.0-9", "6.12.43+deb13")]
    assert [each and each.release for each in found] == ["6.1.0-56-amd64", "6.1.0-9-amd64", "6.12.43+deb13-amd64"]
    assert list(known_kernels()) == []
    assert {each.release for each in known_images()} == {each.release for each in found if each}
    lines = kernels_lines("6.18.0", tuple(known_images()), 200)
    assert any(line.startswith("debian:6.1.0-56  6.1.0-56-amd64  /") for line in lines)
    with pytest.raises(CapabilityError, match=r"apt-get, apt-cache, dpkg-deb.*, to get Debian's kernel 6\.2"):
        find_kernel("debian:6.2")


@given(st.lists(st.tuples(st.integers(1, 7), st.integers(0, 20), st.integers(1, 99)), min_size=1))
def test_the_newest_package_of_a_version_is_chosen_among_those_that_boot_as_a_guest(
    known: list[tuple[int, ...]],
) -> None:
    names = [f"linux-image-{a}.{b}.0-{c}-amd64" for a, b, c in known]
    others = [name.replace("-amd64", f"-{kind}") for name in names for kind in ("cloud-amd64", "amd64-dbg", "arm64")]
    for major, minor, _ in known:
        newest = max(each for each in known if each[:2] == (major, minor))
        found = newest_package(f"{major}.{minor}", [*others, *names])
        assert found == "linux-image-{}.{}.0-{}-amd64".format(*newest)
    assert newest_package("8", names) is None
    assert newest_package("6", others) is None


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


def test_the_doctor_says_what_a_guest_adds(told: Told) -> None:
    lacking = Capability(name="SCTP sockets", found="no", works=False, cost="skips", cure="another kernel")
    assert doctor_lines(None, [lacking], 200, Guest("7.2.11", ("SCTP sockets",)))[-1] == told()
    assert "--kernel" not in doctor_lines(None, [lacking], 200, None)[-1]


@pytest.mark.parametrize(
    "cure",
    [
        "load the kernel's module as root: 'modprobe -a nf_tables'",
        "install nftables 1.0.1 or later, and load the kernel's module as root: 'modprobe -a nf_tables'",
        "as root: 'modprobe nf_tables'",
        "load the kernel modules nf_conntrack_netlink and nf_nat as root",
        "use a kernel that has it: '--kernel uml' runs labs on one",
    ],
)
def test_a_guest_needs_another_kernel_and_no_module_of_the_machine(cure: str) -> None:
    assert cure_in_guest(cure).startswith("build a kernel that has it with `proxylab kernels --obtain`")


def test_what_the_machine_itself_lacks_is_cured_there() -> None:
    assert cure_in_guest("install nginx-light, or nginx") == "install nginx-light, or nginx"
