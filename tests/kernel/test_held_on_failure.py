"""``proxylab run --hold-on-failure``: a shell in the lab of a probe that did not pass, and then the run goes on."""

import subprocess
from pathlib import Path

from command_line import CommandLine
from sandboxed import ROOT

from proxylab.errors import ExitCode


def test_a_shell_opens_in_the_sender_and_the_next_probe_gets_a_new_lab(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "x.lab.yaml"
    text = (ROOT / "tests/kernel/killed.lab.yaml").read_text()
    file.write_text(text.replace("outcome: delivered, source: preserved}", "outcome: dropped}", 1))
    run = cli.start("run", str(file), "--hold-on-failure", "--no-bundles", "--probe=dialled", "--probe=refused",
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    typed = b"hostname; ip link set lo down; ip route del default\n"
    output, errors = run.communicate(typed, timeout=60)
    assert run.returncode == ExitCode.FAILED, errors
    held, _, rest = output.partition(b"\n")
    assert held == b"client"
    assert b"fail  outcome  dropped   delivered" in errors
    assert b"a shell in client; exit it to go on" in errors
    assert b"1 failed, 1 passed" in rest


def test_workers_have_no_terminal_for_it(cli: CommandLine) -> None:
    done = cli.type("run", "scenarios/clusterip", "--hold-on-failure", "-j", "2")
    assert done.status == ExitCode.SCENARIO
    assert "workers have no terminal; leave out --jobs" in done.errors
