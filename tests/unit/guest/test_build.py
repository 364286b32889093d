"""The source of a kernel comes from the machine's own mirror, and a kernel without an option of ours is noticed."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from proxylab.guest.build import lost_options, mirror_in, sources_list

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
