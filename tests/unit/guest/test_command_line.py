"""The guest's command line: within the kernel's limits, and read back as it was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxylab.errors import CapabilityError
from proxylab.guest.outside import uml_command

PATHS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters='"'), min_size=1, max_size=60)


def parsed(text: str) -> list[str]:
    """The parameters as next_arg() in lib/cmdline.c splits them: at blanks outside of double quotes."""
    found, quoted, word = [], False, ""
    for character in text:
        if character == '"':
            quoted = not quoted
        elif character == " " and not quoted:
            found.append(word)
            word = ""
        else:
            word += character
    return [*found, word]


def command(path: str, **environment: str) -> list[str]:
    init = (path, "-m", "proxylab.guest.inside")
    return uml_command("/usr/bin/linux.uml", init, environment=environment, line=7, mebibytes=512)


@given(path=PATHS, value=PATHS)
def test_paths_with_blanks_reach_the_guest_whole(path: str, value: str) -> None:
    binary, *parameters = command(path, PYTHONPATH=value)
    assert binary == "/usr/bin/linux.uml"
    seen = parsed(" ".join(parameters))
    assert f"init={path}" in seen
    assert f"PYTHONPATH={value}" in seen
    assert seen[seen.index("--") :] == ["--", "-m", "proxylab.guest.inside"]


def test_the_machine_s_files_are_read_only_and_the_line_is_the_descriptor() -> None:
    parameters = command("/usr/bin/python3")
    assert "ro" in parameters
    assert "rw" not in parameters
    assert {"rootfstype=hostfs", "ssl0=fd:7", "mem=512M"} <= set(parameters)


def test_what_the_kernel_would_misread_is_refused() -> None:
    with pytest.raises(CapabilityError, match="without a double quote"):
        command('/opt/"lab"/python')
    with pytest.raises(CapabilityError, match="exceed"):
        command("/usr/bin/python3", PYTHONPATH="/lab" * 600)
