"""No program of others outlives the process that starts it, a deadline or a bound, and neither does what it starts."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxylab.binaries.binary import inspect
from proxylab.binaries.commands import FailedCommandError, TooMuchOutputError, feeding, output_of, run_guarded
from proxylab.errors import CapabilityError

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 60.0


def script(folder: Path, text: str) -> Path:
    file = folder / "program"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def escaped(folder: Path) -> int:
    """The pid of the child in a session of its own."""
    wait_for(lambda: (folder / "pid").exists() and (folder / "pid").read_text().endswith("\n"))
    return int((folder / "pid").read_text())


ESCAPE = "setsid sh -c 'echo $$ >pid; exec sleep 1000' &\nwhile [ ! -s pid ]; do :; done"


def test_output_errors_and_status_are_told(tmp_path: Path) -> None:
    file = script(tmp_path, 'echo "$1"; pwd; echo bad >&2; exit 7')
    assert run_guarded((file, "a b"), seconds=PATIENCE, folder=tmp_path) == (7, f"a b\n{tmp_path}\n".encode(), b"bad\n")
    assert run_guarded((script(tmp_path, "kill -KILL $$"),), seconds=PATIENCE).status == 128 + signal.SIGKILL
    assert run_guarded((script(tmp_path, "cat"),), seconds=PATIENCE).output == b""


def test_a_program_has_no_more_of_the_processors_than_the_session_of_its_caller() -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("needs autogroups; this kernel has none, and niceness counts among all processes there")
    if os.geteuid() != 0:
        pytest.skip("needs root; run it as root")
    call = """
from pathlib import Path
from proxylab.binaries.commands import run_guarded
Path("/proc/self/autogroup").write_text("7")
print(run_guarded(("cat", "/proc/self/autogroup"), seconds=60).output.decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", call], capture_output=True, text=True, start_new_session=True, check=True
    )
    assert done.stdout.split()[1:] == ["nice", "7"]


def test_a_program_goes_on_after_the_end_of_its_output_until_the_deadline(tmp_path: Path) -> None:
    file = script(tmp_path, "echo said; exec >&- 2>&-; sleep 0.2; exit 3")
    assert run_guarded((file,), seconds=PATIENCE) == (3, b"said\n", b"")
    file = script(tmp_path, "exec >&- 2>&-; sleep 1000")
    with pytest.raises(subprocess.TimeoutExpired, match=str(file)):
        run_guarded((file,), seconds=0.3)


def test_what_cannot_start_is_told(tmp_path: Path) -> None:
    missing = "no-such-program"
    with pytest.raises(FileNotFoundError):
        run_guarded((missing,), seconds=PATIENCE)
    with pytest.raises(FileNotFoundError):
        run_guarded((tmp_path / "none",), seconds=PATIENCE)
    (tmp_path / "data").write_text("")
    with pytest.raises(PermissionError):
        run_guarded((tmp_path / "data",), seconds=PATIENCE)


def test_a_child_in_a_session_of_its_own_ends_with_the_program(tmp_path: Path) -> None:
    done = run_guarded((script(tmp_path, f"{ESCAPE}\necho done"),), seconds=PATIENCE, folder=tmp_path)
    assert done.output == b"done\n"
    assert not is_running(escaped(tmp_path))


def test_a_program_that_takes_too_long_ends_with_all_below_it(tmp_path: Path) -> None:
    file = script(tmp_path, f"{ESCAPE}\nsleep 1000")
    with pytest.raises(subprocess.TimeoutExpired) as late:
        run_guarded((file,), seconds=3, folder=tmp_path)
    assert "PosixPath" not in str(late.value)
    assert not is_running(escaped(tmp_path))


def test_a_program_that_floods_is_ended(tmp_path: Path) -> None:
    file = script(tmp_path, "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done")
    with pytest.raises(TooMuchOutputError, match="printed more than 1 KiB"):
        run_guarded((file,), seconds=PATIENCE, most=1024)
    with pytest.raises(FailedCommandError, match="exit 1"):
        output_of(("sh", "-c", "echo no >&2; exit 1"), what="exit 1")


def test_a_binary_that_floods_or_idles_is_none(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="printed more than 1,024 KiB, and was ended"):
        inspect(script(tmp_path, "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done"), "mine")
    with pytest.raises(CapabilityError, match="prints: nothing, in 1 s"):
        inspect(script(tmp_path, "sleep 1000"), "mine", seconds=1)


def test_a_program_that_is_fed_ends_by_itself_or_with_the_block(tmp_path: Path) -> None:
    file = script(tmp_path, f"cd {tmp_path}; cat >given; {ESCAPE}; sleep 0.2; echo closed >>given")
    with feeding((str(file),)) as fed:
        assert fed.stdin is not None
        fed.stdin.write(b"frames\n")
    assert (tmp_path / "given").read_text() == "frames\nclosed\n"
    assert not is_running(escaped(tmp_path))
    with pytest.raises(KeyboardInterrupt), feeding(("sleep", "1000")) as fed:
        raise KeyboardInterrupt
    assert fed.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    "call", ["run_guarded(({file!r},), seconds=1000)", "with feeding(({file!r},)) as fed:\n    fed.wait()"]
)
def test_a_killed_client_leaves_nothing(call: str, tmp_path: Path) -> None:
    file = script(tmp_path, f"cd {tmp_path}\n{ESCAPE}\necho $$ >self\nsleep 1000")
    program = f"from proxylab.binaries.commands import feeding, run_guarded\n{call.format(file=str(file))}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}
    client = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        pids = [escaped(tmp_path)]
        wait_for(lambda: (tmp_path / "self").exists() and (tmp_path / "self").read_text().endswith("\n"))
        pids.append(int((tmp_path / "self").read_text()))
    finally:
        client.kill()
        client.wait()
    wait_for(lambda: not any(map(is_running, pids)))
