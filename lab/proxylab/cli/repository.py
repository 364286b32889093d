"""The files with which a repository of one's own tests with proxylab (``proxylab init --repo``, ``doctor --ci``)."""

from pathlib import PurePosixPath
from typing import Final

_PACKAGES: Final = "iptables iproute2 nftables python3-venv"
_INSTALL: Final = f"apt-get update && apt-get install -y --no-install-recommends {_PACKAGES}"
_TOX: Final = "python3 -m venv .venv && .venv/bin/pip install tox"
_LAB: Final = ".venv/bin/tox -e lab -- --junitxml=lab.xml --lab-report=lab.html"
_MODULES: Final = (
    "br_netfilter ip_tables iptable_nat iptable_filter ip6table_nat ip6table_filter vxlan dummy ip_vs sctp"
)

_TOX_INI: Final = """\
# tox -e lab runs the scenarios and the Python tests in tests/ on this machine's kernel.
[tox]
env_list = lab
no_package = true

[testenv:lab]
# A wheel of proxylab may lie in wheels/.
deps =
    --find-links {tox_root}/wheels
    proxylab
pass_env =
    CI
    GITHUB_*
    LAB_*
    XDG_*
commands = pytest --lab-required {posargs} tests
"""

_TEST: Final = '''\
"""What a scenario cannot express: commands between probes, crafted segments."""

import pytest

ECHO = {"service": "echo", "via": "clusterIP"}


@pytest.mark.lab("first.lab.yaml")
def test_a_pod_keeps_its_address_over_a_routed_network(lab):
    lab.probe("client", to=ECHO, expect={"outcome": "delivered", "source": "preserved"})
    assert "10.244.1.0/24" in lab.execute("node-a", "ip", "route").stdout
'''

GITHUB: Final = f"""\
name: lab
on: [push, pull_request]
jobs:
  rootless:
    runs-on: ubuntu-24.04
    steps:
    - uses: actions/checkout@v4
    - run: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0
    - run: sudo modprobe -a {_MODULES}
    - run: sudo sh -c '{_INSTALL}'
    - run: {_TOX}
    - run: {_LAB}
    - uses: actions/upload-artifact@v4
      if: always()
      with: {{name: lab, path: "lab.*"}}
  # As root of a container.
  privileged:
    runs-on: ubuntu-24.04
    strategy:
      fail-fast: false
      matrix: {{image: ["debian:12", "ubuntu:24.04"]}}
    container: {{image: "${{{{ matrix.image }}}}", options: --privileged}}
    steps:
    - uses: actions/checkout@v4
    - run: {_INSTALL}
    - run: {_TOX}
    - run: {_LAB}
"""

GITLAB: Final = f"""\
# The runner's config.toml needs privileged = true in [runners.docker], or the lines that `proxylab doctor --ci` prints.
lab:
  parallel:
    matrix:
    - IMAGE: ["debian:12", "ubuntu:24.04"]
  image: $IMAGE
  before_script:
  - {_INSTALL}
  - {_TOX}
  script:
  - {_LAB}
  artifacts:
    when: always
    paths: [lab.html]
    reports: {{junit: lab.xml}}
"""

_GITIGNORE: Final = """\
# The evidence of failed probes, and what a run of tox leaves.
.proxylab/
.tox/
.venv/
__pycache__/
lab.html
lab.xml
"""

RUNNER: Final = """\
[runners.docker]
  privileged = true
# ... or, with no more than a lab needs; a container loads no kernel module, so its host must have them loaded
[runners.docker]
  cap_add = ["SYS_ADMIN", "NET_ADMIN"]
  security_opt = ["seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"]
"""

CONTAINER: Final = f"""\
docker run --rm --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined \\
  --security-opt apparmor=unconfined --security-opt systempaths=unconfined \\
  --volume "$PWD:/repository" --workdir /repository debian:12 \\
  sh -c '{_INSTALL} && {_TOX} && .venv/bin/tox -e lab'
"""


def files(scenario: str) -> dict[PurePosixPath, str]:
    """The files by their paths in the repository; ``scenario`` is the text of the first one."""
    return {
        PurePosixPath(path): text
        for path, text in {
            "tests/first.lab.yaml": scenario,
            "tests/test_first.py": _TEST,
            "tox.ini": _TOX_INI,
            ".github/workflows/lab.yml": GITHUB,
            ".gitlab-ci.yml": GITLAB,
            ".gitignore": _GITIGNORE,
        }.items()
    }
