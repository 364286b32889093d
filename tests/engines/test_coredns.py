"""Every DNS scenario on a real CoreDNS from the cache, as on the lab's own name server."""

import subprocess
import sys
from pathlib import Path

import pytest

from proxylab.binaries.coredns import coredns_sources

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "dns"


def run(folder: Path, *words: str) -> str:
    """Run scenarios with CoreDNS as the name server of all that name none."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--lab-name-server=coredns")
    done = subprocess.run(
        [*command, f"--basetemp={folder / 'base'}", "--lab-no-bundles", *words],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.mark.needs_coredns
@pytest.mark.thorough  # dns/coredns-caches-answers runs on CoreDNS anyway
def test_every_dns_scenario_passes_on_coredns(tmp_path: Path) -> None:
    if not coredns_sources().cache.binaries():
        pytest.skip("needs a CoreDNS in the cache; 'proxylab engines --obtain coredns' puts one there")
    output = run(tmp_path, str(SCENARIOS), "-n", "2")
    assert " passed, 6 skipped" in output, output[-2000:]  # those that send no question to a name server's port
