"""What qemu boots: an archive that the kernel unpacks, with the modules in their order, and KVM only where it works."""

import lzma
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxylab.errors import CapabilityError
from proxylab.guest.kernels import Kernel
from proxylab.guest.qemu import boot_in_qemu, initramfs

RELEASE = "6.1.0-56-amd64"
INDEX = {
    "kernel/drivers/virtio/virtio_pci.ko": "kernel/drivers/virtio/virtio.ko",
    "kernel/drivers/char/virtio_console.ko": "",
    "kernel/net/9p/9pnet_virtio.ko": "kernel/net/9p/9pnet.ko kernel/drivers/virtio/virtio.ko",
    "kernel/fs/9p/9p.ko.xz": "kernel/net/9p/9pnet.ko",
    "kernel/fs/overlayfs/overlay.ko": "",
    "kernel/drivers/virtio/virtio.ko": "",
    "kernel/net/9p/9pnet.ko": "",
    "kernel/net/sctp/sctp.ko": "",
}


def kernel_in(folder: Path, index: Mapping[str, str] = INDEX) -> Kernel:
    modules = folder / "modules" / RELEASE
    for path in index:
        (modules / path).parent.mkdir(parents=True, exist_ok=True)
        content = f"this is {Path(path).name.removesuffix('.xz')}".encode()
        (modules / path).write_bytes(lzma.compress(content) if path.endswith(".xz") else content)
    (modules / "modules.dep").write_text("".join(f"{path}: {needs}\n" for path, needs in index.items()))
    (folder / "busybox").write_bytes(b"a static busybox")
    return Kernel(str(folder / "vmlinuz"), RELEASE, str(folder / "modules"), is_image=True)


def unpacked(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Mode and content of each file, as init/initramfs.c of Linux reads them."""
    found, at = {}, 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * number : at + 14 + 8 * number], 16) for number in range(13)]
        name = archive[at + 110 : at + 110 + fields[11] - 1].decode()
        at += -(-(110 + fields[11]) // 4) * 4
        if name == "TRAILER!!!":
            return found
        found[name] = fields[1], archive[at : at + fields[6]]
        at += -(-fields[6] // 4) * 4


def test_each_module_comes_after_those_that_it_needs_and_unpacked(tmp_path: Path) -> None:
    files = unpacked(initramfs(kernel_in(tmp_path), ("/usr/bin/python3",), {}))
    modules = [name.partition("-")[2] for name in sorted(files) if name.startswith("modules/")]
    names = ["virtio.ko", "virtio_pci.ko", "virtio_console.ko", "9pnet.ko", "9pnet_virtio.ko", "9p.ko", "overlay.ko"]
    assert modules == names
    assert files["modules/05-9p.ko"][1] == b"this is 9p.ko"
    assert files["bin/busybox"] == (0o100755, b"a static busybox")
    assert files["dev/console"][0] == 0o20600


def test_a_kernel_without_9p_is_refused(tmp_path: Path) -> None:
    for_clouds = {path: needs for path, needs in INDEX.items() if "9p" not in path}
    with pytest.raises(CapabilityError, match=r"the module 9pnet_virtio .* that is not for clouds alone"):
        initramfs(kernel_in(tmp_path, for_clouds), ("/usr/bin/python3",), {})
    modules = tmp_path / "modules" / RELEASE
    (modules / "modules.builtin").write_text("kernel/net/9p/9pnet_virtio.ko\nkernel/fs/9p/9p.ko\n")
    assert initramfs(kernel_in(tmp_path, for_clouds), ("/usr/bin/python3",), {})


WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a busybox that prints its arguments."""
    folder = tmp_path_factory.mktemp("programs")
    written(folder / "busybox", "printf '%s\\0' \"$@\"")
    return folder


def written(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORDS, min_size=1, max_size=4), value=WORDS)
def test_init_gets_its_words_and_its_environment_whole(
    programs: Path, tmp_path: Path, words: list[str], value: str
) -> None:
    script = unpacked(initramfs(kernel_in(tmp_path), words, {"PYTHONPATH": value}))["init"][1].decode()
    last = script[script.index("exec busybox") :]
    done = subprocess.run(["/bin/sh", "-c", last], env={"PATH": str(programs)}, capture_output=True, check=True)
    said = done.stdout.decode().split("\0")[:-1]
    assert said == ["env", "-i", f"PYTHONPATH={value}", "/bin/busybox", "switch_root", "/root", *words]


@pytest.mark.parametrize("kvm", ["exit 1", pytest.param("exec sleep 60", marks=pytest.mark.thorough)])
def test_a_kvm_that_ends_or_hangs_is_passed_over(kvm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qemu = f'case "$*" in *"-accel kvm"*) {kvm};; esac; exit 7'
    written(tmp_path / "qemu-system-x86_64", qemu)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    (tmp_path / "kvm").touch()
    started = []

    def start(command: Sequence[str], descriptors: Sequence[int]) -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen(command, pass_fds=descriptors))
        return started[-1]

    guest, line = boot_in_qemu(kernel_in(tmp_path), ("init",), {}, 64, start, kvm=str(tmp_path / "kvm"))
    line.close()
    assert (guest.wait(10), [each.args[7] for each in started]) == (7, ["kvm", "tcg"])
    assert started[0].returncode is not None


def test_without_qemu_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CapabilityError, match="'apt-get install --no-install-recommends qemu-system-x86'"):
        boot_in_qemu(kernel_in(tmp_path), ("init",), {}, 64, lambda *_: pytest.fail("nothing starts"), kvm="/none")
