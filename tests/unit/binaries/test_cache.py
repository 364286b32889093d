"""The cache: never half a file, one build for many who want it, and nothing left of those who were killed."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kube_proxies import program

from proxylab.binaries.cache import Cache
from proxylab.errors import CapabilityError


def test_it_lies_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.of_user().folder == tmp_path / "proxylab/kube-proxy"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")  # to be ignored, says the specification
    monkeypatch.setenv("HOME", "/home/user")
    assert Cache.of_user().folder == Path("/home/user/.cache/proxylab/kube-proxy")


def test_what_is_kept_is_found_by_version_and_checksum(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for version in ("v1.34.10", "v1.34.9"):
        with cache.workspace(version) as folder:
            kept = cache.keep(program(folder / "kube-proxy", version), "a test")
        assert kept.path.parent.parent.name == version
        assert len(kept.path.parent.name) == 64
        assert not folder.exists()
    assert [each.version for each in cache.binaries()] == ["v1.34.9", "v1.34.10"]
    assert cache.binaries()[0].origin == "a test"


def test_what_is_no_kube_proxy_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with cache.workspace("x") as folder:
        (folder / "kube-proxy").write_text("#!/bin/sh\nexit 1\n")
        with pytest.raises(CapabilityError):
            cache.keep(folder / "kube-proxy", "a test")
    assert cache.binaries() == []
    assert [path.name for path in tmp_path.iterdir()] == ["locks"]


def test_what_lost_its_end_is_no_entry_and_is_kept_anew(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def keep() -> Path:
        with cache.workspace("v1.34.9") as folder:
            return cache.keep(program(folder / "kube-proxy", "v1.34.9"), "a test").path

    kept = keep()
    whole = kept.read_bytes()
    os.truncate(kept, len(whole) // 2)
    assert cache.binaries() == []
    assert keep() == kept
    assert [each.path for each in cache.binaries()] == [kept]
    assert kept.read_bytes() == whole
    (kept.with_name("origin")).write_bytes(b"\xff")  # a damaged note
    assert cache.binaries()[0].origin == "\ufffd"
    kept.with_name("size").unlink()  # an entry of an earlier version
    assert len(cache.binaries()) == 1


def test_those_who_want_the_same_wait_for_each_other_and_others_do_not(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    inside: list[str] = []
    most = 0

    def work(what: str) -> None:
        nonlocal most
        with cache.workspace(what):
            inside.append(what)
            most = max(most, inside.count(what))
            threading.Event().wait(0.02)
            inside.remove(what)

    workers = [threading.Thread(target=work, args=("same",)) for _ in range(5)]
    with cache.workspace("other"):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(10)
    assert most == 1
    assert not any(worker.is_alive() for worker in workers)


def test_who_is_killed_at_work_leaves_no_binary_no_lock_and_no_folder(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; from proxylab.binaries.cache import Cache\n"
        "with Cache(pathlib.Path(sys.argv[1])).workspace('same') as folder:\n"
        "    (folder / 'kube-proxy').write_text('half'); print('there', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        os.kill(child.pid, signal.SIGKILL)
    cache = Cache(tmp_path)
    assert cache.binaries() == []
    with cache.workspace("same") as folder:
        kept = cache.keep(program(folder / "kube-proxy", "v1.36.3"), "a test")
    assert cache.binaries() == [kept]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["locks", "v1.36.3"]


@pytest.mark.skipif(os.geteuid() == 0, reason="needs an ordinary user; root may write anywhere")
def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CapabilityError, match="XDG_CACHE_HOME"), Cache(tmp_path / "x").workspace("same"):
        pass
