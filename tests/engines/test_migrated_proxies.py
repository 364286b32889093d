"""``proxylab migrate`` on real kube-proxies: the certificate of a change of the mode, and of an upgrade.

``tests/kernel/test_audit.py`` has the same on embedded engines, with connections that a change breaks.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, File, steps
from guests import IPSET, OWN

from proxylab.binaries.binary import Binary
from proxylab.binaries.choose import Sources, fits
from proxylab.errors import ExitCode
from proxylab.features.migrate.open_connections import ConnectionFate

PAGE = ROOT / "docs" / "how-to" / "change-the-mode.md"
DOCUMENTED = {
    "nodePort 30080/TCP",
    "beside: unused port 10.96.40.7:9/TCP",
    "beside: echo request to 10.96.40.7",
    "beside: unassigned address 10.96.255.254:80/TCP",
}
"""What mode nftables does otherwise in the cluster of the page, each by a document."""


def certificate(folder: Path, old: str, new: str, *options: str) -> dict[str, Any]:
    """The certificate of the cluster on the page."""
    (dump,) = (each for each in steps(PAGE.read_text(encoding="utf-8")) if isinstance(each, File))
    (folder / dump.name).write_text(dump.text, encoding="utf-8")
    command = ["migrate", dump.name, "--from", old, "--to", new, "-o", "json", *options]
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == ExitCode.FAILED, done.stdout + done.stderr  # something changes
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(found: dict[str, Any]) -> tuple[set[str], list[str]]:
    """The frontends where something changes, each by a document; and what becomes of open connections."""
    assert all(each["documented"] for each in found["changes"])
    fates = [each["fate"] for each in found["openConnections"]["connections"]]
    return {frontend for each in found["changes"] for frontend in each["frontends"]}, fates


@pytest.mark.timeout(300)
def test_from_mode_iptables_to_mode_nftables_only_what_documents_say_changes(
    kube_proxy: Binary, tmp_path: Path
) -> None:
    found = certificate(tmp_path, "kube-proxy/iptables", "kube-proxy/nftables", "--kube-proxy", str(kube_proxy.path))
    changed, fates = shown(found)
    assert changed == DOCUMENTED
    assert len(fates) == 2


def need_kept(*versions: str) -> None:
    """Skip without a kube-proxy of each minor in the cache."""
    kept = Sources.of_user().obtained()
    for version in versions:
        if not any(fits(each.version, version) for each in kept):
            pytest.skip(
                f"needs a kube-proxy {version} in the cache; 'proxylab engines --obtain {version}' puts one there"
            )


@pytest.mark.thorough  # the same with another binary for the old proxy
@pytest.mark.timeout(300)
def test_so_does_an_upgrade_from_1_34_in_mode_iptables_to_1_37_in_mode_nftables(tmp_path: Path) -> None:
    need_kept("v1.34", "v1.37")
    changed, fates = shown(certificate(tmp_path, "kube-proxy@v1.34/iptables", "kube-proxy@v1.37/nftables"))
    assert changed == DOCUMENTED
    assert len(fates) == 2


@OWN
@IPSET
@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_from_mode_ipvs_one_answer_changes_and_open_connections_end(tmp_path: Path) -> None:
    """A proxy in mode nftables deletes the virtual servers when it starts, which knew these connections."""
    need_kept("v1.34", "v1.37")
    engines = "kube-proxy@v1.34/ipvs", "kube-proxy@v1.37/nftables"
    changed, fates = shown(certificate(tmp_path, *engines, "--kernel", "uml"))
    assert changed == {"beside: unassigned address 10.96.255.254:80/TCP"}
    assert fates == [ConnectionFate.ENDS, ConnectionFate.ENDS]
