"""The answer behind the Service is that of the containers' own command."""

import pytest

from proxylab.pytest_plugin import Lab

FETCH = "import urllib.request as r; print(r.urlopen('http://{}/', timeout=5).read().decode())"


@pytest.mark.lab("containers-run-their-command.lab.yaml")
@pytest.mark.parametrize("host", ["10.96.0.80", "[fd00:10:96::80]"])
def test_the_client_reads_what_the_command_serves(lab: Lab, host: str) -> None:
    if lab.mode == "userspace" and ":" in host:
        pytest.skip("mode userspace serves one family, and this cluster's first is IPv4")
    done = lab.execute("client", "python3", "-c", FETCH.format(host))
    assert "Directory listing for /" in done.stdout, done.stderr
    assert 'href="null"' in done.stdout
