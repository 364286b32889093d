"""A guest of any kernel that qemu boots: its command line, and the initramfs that mounts the machine's files.

Debian's kernels have nearly everything as modules, what the root file system needs included. So an initramfs of the
kernel's own modules, a static busybox and a script of a few lines comes first. It mounts the machine's files by 9p,
read-only, and starts the same Python as in a user-mode Linux, which goes on in the same way (``guest.inside``).

virtme-ng boots kernels in this manner, too. It does not serve here: it returns no exit status of a command and no clean
channel without udev in the guest, needs a virtiofsd that Debian 12 lacks, and a lab needs less than it does.
"""

import io
import lzma
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from proxylab.errors import CapabilityError
from proxylab.guest.kernels import Kernel

_LINE: Final = "/dev/vport0p1"
"""Port 1 of the first virtio device, which is the first on the command line (drivers/char/virtio_console.c)."""

_PROGRAM: Final = "qemu-system-x86_64"
_TAG: Final = "machine"
_MODULES: Final = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")
_INIT: Final = """\
#!/bin/busybox sh
set -e
echo the guest starts
for module in /modules/*; do busybox insmod $module; done
busybox mount -t devtmpfs dev /dev
busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=524288 {tag} /root
while [ ! -e {line} ]; do busybox sleep 0.05; done
exec busybox env -i {environment} /bin/busybox switch_root /root {command}
"""
_KVM_SECONDS: Final = 5.0
_DIRECTORY, _FILE, _DEVICE = 0o40755, 0o100755, 0o20600
_CONSOLE: Final = (5, 1)


class StartProgram(Protocol):
    """Starts a program that ends with this process."""

    def __call__(self, command: Sequence[str], descriptors: Sequence[int]) -> "subprocess.Popen[bytes]":
        """Start it, with these descriptors."""


def boot_in_qemu(
    kernel: Kernel,
    init: Sequence[str],
    environment: Mapping[str, str],
    mebibytes: int,
    start: StartProgram,
    kvm: str = "/dev/kvm",
) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Boot a kernel, by KVM if it proves to work, and return qemu and the machine's end of the guest's line.

    ``init`` is the guest's first process, without the path of its line, which becomes the last argument. ``start``
    starts qemu; ``kvm`` is the device of KVM.

    Raises:
        CapabilityError: qemu is not installed, or what ``initramfs`` raises.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        raise CapabilityError(
            f"{_PROGRAM}, which boots the kernel {kernel.binary}",
            "'apt-get install --no-install-recommends qemu-system-x86'",
        )
    qemu = partial(_command, program, kernel, mebibytes)
    archive = os.memfd_create("initramfs")
    with os.fdopen(archive, "wb", closefd=False) as file:
        file.write(initramfs(kernel, (*init, _LINE), environment))
    try:
        if os.access(kvm, os.R_OK | os.W_OK):
            started = _started(qemu, archive, "kvm", start)
            if _says_something(started.console):
                return started.process, started.line
            started.process.kill()
            started.process.wait()
            started.line.close()
        started = _started(qemu, archive, "tcg", start)
        started.console.close()
        return started.process, started.line
    finally:
        os.close(archive)


class _StartedQemu(Struct, frozen=True):
    """Qemu, and the machine's ends of the guest's line and of its console."""

    process: "subprocess.Popen[bytes]"
    line: socket.socket
    console: socket.socket


def _started(
    qemu: Callable[[int, int, int, str], list[str]], archive: int, accelerator: str, start: StartProgram
) -> _StartedQemu:
    """Qemu and its lines."""
    (line, its_line), (console, its_console) = socket.socketpair(), socket.socketpair()
    with its_line, its_console:
        descriptors = (archive, its_line.fileno(), its_console.fileno())
        return _StartedQemu(start(qemu(*descriptors, accelerator), descriptors), line, console)


def _says_something(console: socket.socket) -> bool:
    """Whether the guest comes as far as its init. In a virtual machine, KVM may hang before, or qemu end."""
    console.settimeout(_KVM_SECONDS)
    with console, suppress(OSError):
        return bool(console.recv(1))
    return False


def _command(
    program: str, kernel: Kernel, mebibytes: int, archive: int, line: int, console: int, accelerator: str
) -> list[str]:
    """The command that boots a kernel; the initramfs, the line and the console are descriptors.

    What the guest prints to its console also goes to standard error.
    """
    parameters = "console=ttyS0 quiet loglevel=4 panic=-1 nf_conntrack.hashsize=65536"  # as for ``uml_command``
    return [
        program,
        *("-no-user-config", "-nodefaults", "-no-reboot", "-display", "none"),  # after a panic it ends
        *("-accel", accelerator, "-cpu", "host" if accelerator == "kvm" else "max", "-m", f"{mebibytes}M"),
        *("-kernel", kernel.binary, "-initrd", f"/proc/self/fd/{archive}", "-append", parameters),
        *("-chardev", f"socket,id=line,fd={line}"),
        *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=line"),
        *("-fsdev", "local,id=files,path=/,security_model=none,readonly=on,multidevs=remap"),
        *("-device", f"virtio-9p-pci,fsdev=files,mount_tag={_TAG}"),
        *("-chardev", f"socket,id=console,fd={console},logfile=/proc/self/fd/2,logappend=on"),
        *("-serial", "chardev:console"),
    ]


def initramfs(kernel: Kernel, command: Sequence[str], environment: Mapping[str, str]) -> bytes:
    """The archive in which ``command`` is the guest's first process, with this environment, on the machine's files.

    Raises:
        CapabilityError: the kernel's folder lacks a module or their index, or there is no static busybox.
    """
    modules = dict(_modules(kernel)) if kernel.modules else {}
    init = _INIT.format(
        tag=_TAG,
        line=_LINE,
        environment=shlex.join(f"{name}={value}" for name, value in environment.items()),
        command=shlex.join(command),
    )
    made = io.BytesIO()
    for folder in ("bin", "dev", "modules", "root"):
        _write(made, folder, _DIRECTORY)
    _write(made, "dev/console", _DEVICE, device=_CONSOLE)
    _write(made, "bin/busybox", _FILE, _busybox(kernel).read_bytes())
    for number, (name, content) in enumerate(modules.items()):
        _write(made, f"modules/{number:02}-{name}", _FILE, content)
    _write(made, "init", _FILE, init.encode())
    _write(made, "TRAILER!!!", 0)
    return made.getvalue()


def _write(archive: io.BytesIO, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
    """Add a file in the format ``newc`` (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    links, terminated = 1, name.encode() + b"\0"
    fields = (archive.tell(), mode, 0, 0, links, 0, len(content), 0, 0, *device, len(terminated), 0)
    for part in (b"070701" + b"".join(b"%08x" % field for field in fields) + terminated, content):
        archive.write(part)
        archive.write(bytes(-archive.tell() % 4))


def _modules(kernel: Kernel) -> Iterator[tuple[str, bytes]]:
    """The modules that the guest's first steps need, each after those that it needs itself; not the built-in ones."""
    folder = Path(kernel.modules, kernel.release)
    needs = {}
    for line in (folder / "modules.dep").read_text(encoding="utf-8").splitlines():
        path, _, others = line.partition(":")
        needs[path] = others.split()
    by_name = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    built_in = (folder / "modules.builtin").read_text(encoding="utf-8") if (folder / "modules.builtin").exists() else ""
    loaded: list[str] = []

    def load(path: str) -> None:
        for other in reversed(needs[path]):
            load(other)
        if path not in loaded:
            loaded.append(path)

    for name in _MODULES:
        if name in by_name:
            load(by_name[name])
        elif f"/{name}.ko" not in built_in:
            raise CapabilityError(
                f"the module {name} of the kernel {kernel.binary}, by which a guest gets the machine's files",
                "choose a kernel that is not for clouds alone: Debian's linux-image-…-amd64",
            )
    for path in loaded:
        name, content = Path(path).name, (folder / path).read_bytes()
        if name.endswith(".xz"):
            name, content = name.removesuffix(".xz"), lzma.decompress(content)
        yield name, content


def _busybox(kernel: Kernel) -> Path:
    """A busybox without shared libraries: one beside the kernel, which Debian's comes with, or the machine's."""
    found = shutil.which("busybox", path=os.environ.get("PATH", os.defpath) + ":/bin")
    for path in (Path(kernel.binary).with_name("busybox"), *([Path(found)] if found else [])):
        if path.exists() and b"/ld-linux" not in path.read_bytes():
            return path
    raise CapabilityError(
        "a static busybox, which mounts a guest's files", "'apt-get install busybox-static', or --kernel debian:VERSION"
    )
