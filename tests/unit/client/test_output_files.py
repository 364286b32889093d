"""Files that a user asked for are whole, or stay as they were."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from proxylab.client.output_files import write_whole
from proxylab.errors import OutputError


def test_a_file_is_made_with_its_folder_and_replaced_with_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "new/page.html"
    write_whole(file, "first")
    file.chmod(0o640)
    write_whole(file, "second")
    assert file.read_text() == "second"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in file.parent.iterdir()] == ["page.html"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_full_disk_leaves_the_earlier_file_and_no_part_of_the_new_one(tmp_path: Path) -> None:
    """The limit on the size of files (RLIMIT_FSIZE) stands for a full disk."""
    file = tmp_path / "page.html"
    file.write_text("earlier")
    program = (
        "import signal, sys; from pathlib import Path; from proxylab.client.output_files import write_whole\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "try: write_whole(Path(sys.argv[1]), 'x' * 100_000)\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run(
        # Without -B, Python would cut off the compiled modules of this checkout at the limit, too.
        [sys.executable, "-B", "-c", program, str(file)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == f"cannot write {file}: File too large; free some space there, or name another file\n"
    assert file.read_text() == "earlier"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(("name", "why"), [("/dev/full", "No space left on device"), ("fifo", "No such device")])
def test_what_takes_nothing_is_named_at_once(tmp_path: Path, name: str, why: str) -> None:
    os.mkfifo(tmp_path / "fifo")  # no program reads it
    with pytest.raises(OutputError, match=f"cannot write .*{name}: {why}"):
        write_whole(tmp_path / name, "text")


def test_a_fifo_that_a_program_reads_gets_everything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with subprocess.Popen(["wc", "-c", str(tmp_path / "fifo")], stdout=subprocess.PIPE, text=True) as reader:
        descriptor = os.open(tmp_path / "fifo", os.O_WRONLY)  # returns once wc has opened it
        write_whole(tmp_path / "fifo", "x" * 300_000)
        os.close(descriptor)
        assert reader.communicate(timeout=30)[0].split()[0] == "300000"
