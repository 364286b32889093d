"""The snapshot of the machine covers the rules themselves, not just the names of their tables.

The test runs in a network namespace of its own. Only the machine's root may read rules at all.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# One rule exists before, so that its table has a name already; then nothing changes; then one more rule exists.
TWO_LOOKS = """
import subprocess, sys
from machine import Machine

def add(port):
    subprocess.run([*sys.argv[1:], "-A", "INPUT", "-p", "tcp", "--dport", str(port), "-j", "DROP"], check=True)

add(1)
before, still = Machine.now(), Machine.now()
add(2)
print(before.differences(still))
print(before.differences(Machine.now()))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may read the machine's rules; run it as root")
@pytest.mark.parametrize("variant", ["legacy", "nft"])
@pytest.mark.parametrize("family", ["iptables", "ip6tables"])
def test_a_rule_more_is_noticed(family: str, variant: str) -> None:
    command = f"{family}-{variant}"
    inside = ["unshare", "--net", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
    environment = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    if subprocess.run([*inside, command, "-S", "INPUT"], capture_output=True, env=environment, check=False).returncode:
        pytest.skip(f"{command} does not work here")
    done = subprocess.run(
        [*inside, sys.executable, "-c", TWO_LOOKS, command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parent,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    nothing, something = done.stdout.splitlines()
    assert nothing == "[]"
    assert "--dport 2 -j DROP" in something
    assert "rules: " in something
