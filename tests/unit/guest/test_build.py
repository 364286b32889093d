"""The source of a kernel comes from the machine's own mirror, and what was built before is kept without one."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxylab.errors import CapabilityError
from proxylab.guest.build import build_kernel, built_before, lost_options, mirror_in, sources_list

FRAGMENT = Path(__file__).parents[3] / "lab/proxylab/guest/uml.config"


def test_the_mirror_is_that_of_debian_s_main_archive() -> None:
    lines = [
        "Debian-Security|main|http://mirror.example/debian-security/",
        "Debian|contrib|http://mirror.example/other/",
        "Debian|main|http://mirror.example/debian/",
        "Debian|main|http://mirror.example/second/",
    ]
    assert mirror_in(lines) == "http://mirror.example/debian/"
    assert mirror_in(lines[:2]) is None


def test_only_the_suite_differs_and_a_keyring_is_named_where_there_is_one() -> None:
    assert sources_list("http://mirror.example/debian/", Path("/k.gpg")) == (
        "deb [signed-by=/k.gpg] http://mirror.example/debian/ stable-backports main\n"
    )
    assert sources_list("http://mirror.example/", None) == "deb http://mirror.example/ stable-backports main\n"


@given(st.data())
def test_an_option_that_a_kernel_does_not_take_is_named(data: st.DataObject) -> None:
    fragment = FRAGMENT.read_text(encoding="utf-8")
    options = [line for line in fragment.splitlines() if line.startswith("CONFIG_")]
    lost = data.draw(st.lists(st.sampled_from(options), unique=True, max_size=5))
    made = "\n".join(["# CONFIG_OTHER is not set", *(line for line in options if line not in lost)])
    assert set(lost_options(fragment, made)) == set(lost)


def test_each_option_of_ours_is_named_once_and_built_in() -> None:
    options = [line for line in FRAGMENT.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert [line for line in options if not line.endswith("=y")] == []
    assert len(options) == len(set(options))


def place(folder: Path, version: str, config: bytes) -> Path:
    """A kernel in the cache, as it is built of that version and configuration."""
    digest = hashlib.sha256(f"linux-source-{version[:3]}={version}".encode() + config).hexdigest()[:12]
    kernel = folder / f"{version}-{digest}" / "linux"
    kernel.parent.mkdir(parents=True)
    kernel.touch()
    return kernel


def test_a_kernel_of_another_configuration_was_not_built_before(tmp_path: Path) -> None:
    ours, older = (place(tmp_path, each, FRAGMENT.read_bytes()) for each in ("7.2.11-1~bpo13+1", "7.1.9-1"))
    place(tmp_path, "7.3.4-1", b"CONFIG_OTHER=y")
    (tmp_path / "debian-6.1.0-56-amd64").mkdir()
    (tmp_path / "debian-6.1.0-56-amd64" / "linux").touch()
    os.utime(older, ns=(1, 1))
    assert built_before(tmp_path) == ours
    ours.unlink()
    assert built_before(tmp_path) == older
    older.unlink()
    assert built_before(tmp_path) is None


@pytest.mark.parametrize("there", [True, False])
def test_without_the_means_to_build_a_kernel_is_kept_and_else_the_lack_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine_is: Callable[[str], None], there: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    machine_is("x86_64")
    told: list[str] = []
    if there:
        kept = place(tmp_path / "proxylab/kernels", "7.2.11-1", FRAGMENT.read_bytes())
        assert build_kernel(told.append) == kept
        assert f"keeping {kept}, since a newer one needs apt-get" in told[0]
    else:
        with pytest.raises(CapabilityError, match=r"apt-get.*gcc.*libc6-dev"):
            build_kernel(told.append)
