"""What tests and the product start, ``./dev`` provides, or each Debian has: the two cannot drift apart."""

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from started_programs import programs_of, programs_of_script

from proxylab.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for folder in ("lab/proxylab", "tests", "scenarios") for path in sorted((ROOT / folder).rglob("*.py"))]
DEV = (ROOT / "dev").read_text(encoding="utf-8")

PROVIDED = dict(
    re.findall(
        r"([\w./-]+):([\w.+-]+)", "".join(re.findall(r'^readonly PROGRAMS\w*="(.*?)"', DEV, re.MULTILINE | re.DOTALL))
    )
)
"""What ``./dev test`` installs: the package of each program."""

PACKAGES = {
    *PROVIDED.values(),
    *re.findall(r"\becho ([a-z][\w.-]+)$", DEV, re.MULTILINE),
    *re.findall(r"install_packages ([a-z][\w.-]+)", DEV),
}
"""All packages that ``./dev`` installs."""

IN_PACKAGES = {
    "bridge": "iproute2",
    "depmod": "kmod",
    "insmod": "kmod",
    "ip": "iproute2",
    "ip6tables-restore": "iptables",
    "ip6tables-save": "iptables",
    "iptables": "iptables",
    "iptables-legacy": "iptables",
    "iptables-legacy-restore": "iptables",
    "iptables-legacy-save": "iptables",
    "iptables-nft": "iptables",
    "iptables-restore": "iptables",
    "iptables-save": "iptables",
    "nft": "nftables",
    "nginx": "nginx-light",
    "qemu-system-x86_64": "qemu-system-x86",
    "strip": "gcc",  # of binutils, which gcc cannot do without
}
"""The packages of further programs that tests and the product start."""

ALWAYS = {"iptables", "iproute2", "nftables"}
"""Without these packages ``./dev`` stops. An ordinary user's machine may lack all others."""

SKIPPED_ELSEWHERE = {
    "tests/support/browser.py": "says whether there is a browser",
    "tests/kernel/guests.py": "says whether there is a qemu",
    "tests/kernel/test_ipvs_in_a_guest.py": "its labs have mode ipvs, which looks for ipset first",
}

OF_THE_ENVIRONMENT = {"go", "lint-imports", "mypy", "node", "npm", "proxylab", "pytest", "python", "python3", "ruff"}
"""What pip installs into .venv, with the interpreter."""

OF_DEBIAN = {
    *("bash", "cat", "chmod", "cut", "date", "dmesg", "dpkg-deb", "dpkg-query", "echo", "env", "false"),
    *("flock", "getent", "grep", "head", "hostname", "id", "ln", "ls", "mkdir", "mktemp", "mount", "nice"),
    *("printf", "prlimit", "sed", "setpriv", "setsid", "sh", "sleep", "sort", "stat", "stty", "swapoff"),
    *("swapon", "tail", "tar", "tee", "timeout", "touch", "true", "umount", "unshare", "wc", "xargs"),
}
"""What each Debian has: it cannot be removed, or not without a warning."""

WITHOUT_APT = {"apt-cache", "apt-get", "sudo"}
"""Of Debian's own tool, and how an ordinary user starts it; without them ``./dev`` installs nothing."""

OTHERWISE = {
    "busybox": "in a guest alone, where proxylab looks for it first",
    "chromium-browser": "another name of chromium",
    "dockerd": "the tests load Docker's packages into a folder of their own, with --all",
    "google-chrome": "another browser of the same kind",
    "kube-scheduler": "a word of the control plane's one program, which tests find in the cache or skip",
    "wireshark": "needs a screen; the test has one of its own making",
}
"""What neither provides, and why no test needs it."""

BUILTINS = {
    *(".", ":", "[", "alias", "break", "case", "cd", "command", "continue", "do", "done", "eval", "exec", "exit"),
    *("export", "fi", "for", "function", "if", "in", "kill", "local", "popd", "pushd", "pwd", "read", "readonly"),
    *("return", "set", "shift", "test", "trap", "ulimit", "umask", "unset", "until", "wait", "while"),
}
NO_PROGRAMS = {
    *VERBS,
    *("build", "commit", "list", "mod", "tool"),  # of go and git
    *("api-resources", "delete", "events", "pods", "scale"),  # of kubectl and `proxylab get`
    *("cluster.yaml", "externalip"),  # of `proxylab import` and `proxylab conformance`
    *("client", "filter", "ipvs", "nat", "node-a", "node-b", "nodeport"),  # names in the kernel and in scenarios
    "said",  # a program of a test's own making
    *("autoload", "compinit", "complete"),  # of zsh and bash
    *("add", "choose", "give", "install", "leave", "lint", "mh", "try", "use", "without"),  # said about options
}


@pytest.fixture(scope="module")
def started() -> dict[str, list[str]]:
    """Each program that Python code of the project starts, with its places."""
    found = defaultdict(list)
    for path in SOURCES:
        for name, line in programs_of(path):
            if name.startswith("/") or "/" not in name:
                found[name.rpartition("/")[2]].append(f"{path.relative_to(ROOT)}:{line}")
    return {name: places for name, places in found.items() if name not in BUILTINS | NO_PROGRAMS}


def test_what_is_started_is_provided(started: dict[str, list[str]]) -> None:
    known = {*PROVIDED, *IN_PACKAGES, *OF_THE_ENVIRONMENT, *OF_DEBIAN, *WITHOUT_APT, *OTHERWISE}
    assert {name: places for name, places in started.items() if name not in known} == {}
    assert {package for package in IN_PACKAGES.values() if package not in PACKAGES} == set()


def test_where_a_program_may_lack_the_tests_that_start_it_say_so(started: dict[str, list[str]]) -> None:
    optional = {name: package for name, package in {**PROVIDED, **IN_PACKAGES}.items() if package not in ALWAYS}
    without_a_word = [
        f"{name} at {place}"
        for name, package in optional.items()
        for place in started.get(name, ())
        if name != "git" and place.startswith(("tests/", "scenarios/"))  # a clone is made with git
        if (file := place.partition(":")[0]) not in SKIPPED_ELSEWHERE
        if not re.search(rf"needs [^\"]*\b({name}|{package})\b", (ROOT / file).read_text(encoding="utf-8"))
    ]
    assert without_a_word == []


def test_what_is_listed_here_is_started(started: dict[str, list[str]]) -> None:
    listed = {*IN_PACKAGES, *OF_THE_ENVIRONMENT, *OF_DEBIAN, *WITHOUT_APT, *OTHERWISE}
    assert listed - {*started} == set()


def test_what_dev_installs_has_a_use() -> None:
    """A build of a kernel starts some of it by make(1), and a table of shells has others: any mention counts."""
    texts = [
        path.read_text(encoding="utf-8") for path in SOURCES if path.name not in ("test_programs.py", "test_dev.py")
    ]
    mentioned = {word for text in texts for word in re.findall(r"[\w.-]+", text)}
    assert {Path(program).name for program in PROVIDED} - mentioned == set()


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="needs Debian's list of packages; dpkg has it")
@pytest.mark.parametrize("program", sorted(OF_DEBIAN))
def test_each_debian_has_the_rest(program: str) -> None:
    path = Path(shutil.which(program) or f"no {program}").resolve()
    merged = path.relative_to("/usr") if path.is_relative_to("/usr") else path.relative_to("/")
    searched = subprocess.run(
        ["dpkg-query", "--search", f"/usr/{merged}", f"/{merged}"], capture_output=True, text=True, check=False
    )
    package = searched.stdout.partition(":")[0]
    asked = ["dpkg-query", "--show", "--showformat", "${Essential} ${Priority} ${Package}\n", package]
    essential, priority, _ = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    assert essential == "yes" or priority == "required", f"{program} is in {package}, which a Debian may lack"


def test_the_first_word_of_each_command_of_a_script_is_found() -> None:
    script = """
    # not this one
    a=1 first | second -x && if third 'fourth; fifth'; then sixth; fi
    until seventh $(eighth) 2>/dev/null; do exec ninth; done
    ip netns exec "$name" eleventh -x; setsid unshare --net twelfth
    cat <<'END'
    tenth
    END
    """
    assert {*programs_of_script(script)} >= {"first", "second", "third", "sixth", "seventh", "eighth", "ninth", "cat"}
    assert {*programs_of_script(script)} >= {"ip", "eleventh", "setsid", "unshare", "twelfth"}
    assert not {*programs_of_script(script)} & {"not", "fourth", "fifth", "a"}
