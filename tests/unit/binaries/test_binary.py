"""A file is asked which kube-proxy it is, and does not get more time than that takes."""

import asyncio
from pathlib import Path

import pytest
from kube_proxies import program

from proxylab.binaries.binary import inspect
from proxylab.errors import CapabilityError
from proxylab.timing import Deadline, wait_until

HANGS = "#!/bin/sh\nsleep 60 &\necho $! > {child}\nwait\n"


def lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def test_its_version(tmp_path: Path) -> None:
    assert inspect(program(tmp_path / "kube-proxy", "v1.36.3"), "here").version == "v1.36.3"


def test_one_that_hangs_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    hanging = tmp_path / "kube-proxy"
    hanging.write_text(HANGS.format(child=child))
    hanging.chmod(0o755)
    with pytest.raises(CapabilityError, match=r"none that runs here \('--version' prints: nothing, in 2 s\)"):
        inspect(hanging, "here", seconds=2)
    pid = child.read_text().strip()
    asyncio.run(wait_until(lambda: not lives(pid), Deadline.after(10), "the end of what it has started"))
