"""A limit of the process or a missing place ends a command with one line that names it, and what is needed."""

import os
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandboxed import ORDINARY, ROOT, checkout_for, python_of, sandboxed
from verb_kills import NO_KUBE_PROXY, TABLE, Typed, cached_kube_proxy, lay_out, needs_of

from proxylab.cli.verbs import VERBS
from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.timing import Deadline

SCENARIO = "scenarios/clusterip/from-a-pod.lab.yaml"
OF_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which alone mounts; run as root")


def run(
    words: str, *, before: str = "", folder: Path | str = "/", environment: dict[str, str] | None = None
) -> tuple[int, str]:
    """What a shell prints and returns for ``proxylab WORDS`` after the commands ``before``."""
    called = f"{before}\nexec {shlex.quote(sys.executable)} -m proxylab {words}"
    done = subprocess.run(
        ["bash", "-c", called],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "lab"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
            **(environment or {}),
        },
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("-n 8", "'ulimit -n' allows 8"),
        ("-n 64", "71 open files; 'ulimit -n' allows 64"),
        ("-v 400000", "1,048,576 KiB of address space; 'ulimit -v' allows 400,000"),
        ("-f 1", "16,384 KiB in a file; 'ulimit -f' allows 1"),
        # Other amounts of the same.
        *(
            pytest.param(limit, said, marks=pytest.mark.thorough)
            for limit, said in (
                ("-n 40", "71 open files; 'ulimit -n' allows 40"),
                ("-n 48", "71 open files; 'ulimit -n' allows 48"),
                ("-n 80", "open files; 'ulimit -n' allows 80"),
                ("-v 100000", "KiB of address space; 'ulimit -v' allows 100,000"),
            )
        ),
    ],
)
def test_a_limit_is_named_with_what_is_needed(limit: str, said: str, tmp_path: Path) -> None:
    code, output = run(f"run {ROOT / SCENARIO} --no-bundles", before=f"ulimit {limit}", folder=tmp_path)
    assert code == 4, output
    assert said in output
    assert f"raise that limit with 'ulimit {limit.split(maxsplit=1)[0]}'" in output
    assert "Traceback" not in output
    assert "memory" not in output


LIMITS = {
    "-n 8": "71 open files; 'ulimit -n' allows 8",
    "-n 48": "71 open files; 'ulimit -n' allows 48",
    "-v 400000": "1,048,576 KiB of address space; 'ulimit -v' allows 400,000",
    "-f 1": "16,384 KiB in a file; 'ulimit -f' allows 1",
    "-u 20": "processes of this user; 'ulimit -u' allows 20",  # how many more are needed goes by how many there are
}
CASES = [(verb, typed, limit) for verb in VERBS for typed in TABLE[verb] for limit in LIMITS]


def cases() -> Iterator[object]:
    """Each verb as it is typed where processes are killed, with each limit; each run has one limit of each verb."""
    for number, (verb, typed, limit) in enumerate(CASES):
        turn = number % len(LIMITS) == (number // len(LIMITS)) % len(LIMITS)
        marks = [] if turn and typed.lab == "own" else [pytest.mark.thorough]
        marks += needs_of(typed)
        yield pytest.param(verb, typed, limit, id=f"{verb} {typed.words.split(' ')[0]} {limit}", marks=marks)


@pytest.mark.parametrize(("verb", "typed", "limit"), [*cases()])
def test_each_verb_names_the_limit_or_needs_no_more(verb: str, typed: Typed, limit: str, tmp_path: Path) -> None:
    """A verb with a lab of its own says so before it begins one. The others do their work, or say that too."""
    if typed.needs_kube_proxy and cached_kube_proxy() is None:
        pytest.skip(NO_KUBE_PROXY)
    words = f"{verb} {typed.words.replace('PROXY', str(cached_kube_proxy()))}"
    environment = lay_out(tmp_path, ROOT, ordinary=False)
    code, output = run(words, before=f"ulimit {limit}", folder=tmp_path / "work", environment=environment)
    assert "Traceback" not in output
    assert "has a bug" not in output
    if typed.lab == "own":
        assert code == 4, output
        joined = " ".join(output.split())
        assert "this machine lacks" in joined
        assert LIMITS[limit] in joined
        assert f"raise that limit with 'ulimit {limit.split(maxsplit=1)[0]}'" in joined
    elif code == 4:
        assert "raise that limit with" in output or "this machine lacks" in output
    elif code == 1 and limit.startswith("-f"):
        assert "File too large; free some space there, or name another file" in " ".join(output.split())
    else:
        assert code in {*typed.codes, 2}, output  # 2: no lab stands


def as_ordinary_user(limit: str, words: str) -> tuple[int, str]:
    """What an ordinary user reads below a limit of processes, to which a word of bash may add those that there are."""
    there = f"$(cat /proc/[0-9]*/status 2>/dev/null | grep -cP '^Uid:\t{ORDINARY}\t')" if os.geteuid() == 0 else "400"
    with checkout_for(ordinary=True) as (root, become), tempfile.TemporaryDirectory(prefix="open-") as folder:
        Path(folder).chmod(0o777)
        program = f"ulimit -u $(({limit.replace('THERE', there)})); exec {python_of(root)} -m proxylab {words}"
        done = subprocess.run(
            [*become, "bash", "-c", program.replace("ROOT", str(root))],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{root}/lab", "XDG_RUNTIME_DIR": "", "COLUMNS": "200"},
        )
    return done.returncode, done.stdout + done.stderr


def test_so_is_the_limit_on_the_processes_of_a_user() -> None:
    code, output = as_ordinary_user("5", f"up ROOT/{SCENARIO}")
    assert code == 4, output
    assert "processes of this user; 'ulimit -u' allows 5; raise that limit with 'ulimit -u'" in output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    "spare", [66, *(pytest.param(each, marks=pytest.mark.thorough) for each in (68, 70, 74, 80, 90, 110))]
)
def test_a_lab_that_meets_the_limit_of_processes_later_names_it_too(spare: int) -> None:
    """It begins, since a small lab has room. Its workers, commands and threads may find none, or just enough."""
    code, output = as_ordinary_user(f"THERE + {spare}", f"run ROOT/{SCENARIO} ROOT/{SCENARIO} --jobs 4 --no-bundles")
    assert "Traceback" not in output
    assert "has a bug" not in output
    assert code in (0, 4), output
    assert (code == 4) == ("'ulimit -u' allows" in output), output


@OF_ROOT
def test_labs_of_root_count_the_processes_of_their_commands_alone(tmp_path: Path) -> None:
    """The machine's root has no such limit, and hundreds of processes."""
    code, output = run(f"run {ROOT / SCENARIO} --no-bundles", before="ulimit -u 200", folder=tmp_path)
    assert code == 0, output


async def commands_without_room(launcher: Launcher) -> dict[str, object]:
    """What becomes of commands while the launcher may start no process, and afterwards."""
    (child,) = map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
    places = {name: launcher.make_netns(name) for name in ("known", "new")}

    async def run(name: str) -> int | str:
        try:
            done = await launcher.run(places[name], ["true"], netns_name=name, deadline=Deadline.after(20))
        except CapabilityError as error:
            return error.missing
        return done.status

    found: dict[str, object] = {"before": await run("known")}
    soft, hard = resource.prlimit(child, resource.RLIMIT_NPROC)
    resource.prlimit(child, resource.RLIMIT_NPROC, (1, hard))
    found |= {name: await run(name) for name in places}
    resource.prlimit(child, resource.RLIMIT_NPROC, (soft, hard))
    found["after"] = [await run(name) for name in places]
    return found


def test_a_launcher_at_the_limit_says_so_and_goes_on() -> None:
    found = sandboxed(commands_without_room, ordinary=True)
    assert (found["before"], found["after"]) == (0, [0, 0])
    for name in ("known", "new"):
        assert "processes" in str(found[name]), found


def test_a_larger_lab_needs_more_descriptors(tmp_path: Path) -> None:
    file = tmp_path / "many.lab.yaml"
    text = (ROOT / SCENARIO).read_text()
    file.write_text(text.replace("    client: {", "    more: {replicas: 60, nodes: [node-a]}\n    client: {", 1))
    code, output = run(f"up {file} --name limited", before="ulimit -n 256", folder=tmp_path)
    assert code == 4, output
    assert "open files; 'ulimit -n' allows 256" in output
    assert "Traceback" not in output


# A verb that starts a lab, and one that does not.
@pytest.mark.parametrize(
    "words",
    [
        "run {}",
        "ps",
        *(
            pytest.param(words, marks=pytest.mark.thorough)
            for words in ("up {} --name gone", "check x.lab.yaml", "init y.lab.yaml")
        ),
    ],
)
def test_a_working_directory_that_is_gone(words: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code, output = run(words.format(ROOT / SCENARIO), before=f"rmdir {gone}", folder=gone)
    assert "Traceback" not in output
    if words.startswith("up"):
        assert (code, output) == (2, "the working directory is gone; change to one that is there\n")
    else:
        assert code in (0, 1, 2), output


@OF_ROOT
@pytest.mark.parametrize(
    "words",
    [
        "up {} --name nowhere",
        "ps",
        *(pytest.param(words, marks=pytest.mark.thorough) for words in ("run {}", "down", "init x.lab.yaml")),
    ],
)
def test_a_machine_without_a_place_to_write(words: str) -> None:
    """Neither a temporary directory nor the working directory can be written."""
    places = ("/dev/shm", "/tmp", "/var/tmp", "/usr/tmp", "/run")
    mounts = [f"[ ! -d {each} ] || mount -t tmpfs -o ro none {each}" for each in places]
    called = f"{shlex.quote(sys.executable)} -m proxylab {words.format(ROOT / SCENARIO)}"
    script = "\n".join([*mounts, "cd /dev/shm", called])
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "lab"), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    output = done.stdout + done.stderr
    assert "Traceback" not in output
    if words.startswith("run"):
        assert done.returncode == 0, output
    elif words.startswith("init"):
        assert done.returncode in (1, 2), output
    else:
        assert done.returncode == 4, output
        assert output.startswith("this machine lacks a directory for standing labs (")
        assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    "squatter", ["link", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("file", "open folder"))]
)
def test_a_squatted_folder_for_control_sockets(squatter: str, tmp_path: Path) -> None:
    place = tmp_path / f"proxylab-{os.geteuid()}"
    match squatter:
        case "file":
            place.write_text("")
        case "link":
            place.symlink_to("/etc")
        case _:
            place.mkdir()
            place.chmod(0o777)
    environment = {"XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)}
    for words in (f"up {ROOT / SCENARIO}", "ps", "down"):
        code, output = run(words, folder=tmp_path, environment=environment)
        assert code == 4, output
        assert output.startswith(
            f"this machine lacks a private directory for standing labs ({place} belongs to another"
        )
        assert len(output.splitlines()) == 1
