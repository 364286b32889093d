"""``proxylab import`` as its caller sees it."""

import io
import sys
from pathlib import Path

import pytest
from kubectl_clusters import k3s

from proxylab.cli import main
from proxylab.errors import ExitCode
from proxylab.scenario.source import MOST_BYTES


def type_in(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["import", *arguments])
    return int(str(ended.value.code))


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> str:
    """A printout on standard input."""
    text = k3s().json()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    return text


def test_what_is_piped_in_comes_out_as_a_scenario(piped: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert type_in("--name", "mine") == ExitCode.OK
    output, errors = capsys.readouterr()
    assert "\nkind: Scenario\nmetadata:\n  name: mine\n" in output
    told = [line.strip() for line in errors.replace("\n    ", " ").splitlines()[1:]]  # broken at 80 columns
    assert [f"#   {line}" for line in told] == output.splitlines()[3 : 3 + len(told)]


def test_files_are_read_and_a_new_file_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, written = k3s(), tmp_path / "mine.lab.yaml"
    nodes, rest = tmp_path / "nodes.json", tmp_path / "rest.yaml"
    nodes.write_text(cluster.json())
    rest.write_text("kind: Secret\n---\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n")
    assert type_in(str(nodes), str(rest), "-o", str(written)) == ExitCode.OK
    assert written.read_text().startswith("# Written by `kubectl get svc,endpointslices,pods,nodes -A -o yaml | ")
    output, errors = capsys.readouterr()
    assert output == ""
    assert "objects of other kinds: 1 Secret" in errors
    assert "workloads; the scenario has the pods that Services need: Deployment shop/web" in " ".join(errors.split())
    engine = "kube-proxy@v1.34.2/iptables"
    assert errors.splitlines()[-2:] == [
        f"{written}: 29 probes; try `proxylab run {written}`",
        f"  with the cluster's own proxy: --engine {engine}",
    ]


def test_nothing_is_overwritten(piped: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "mine.lab.yaml"
    there.write_text("mine")
    assert type_in("-o", str(there)) == ExitCode.SCENARIO
    assert there.read_text() == "mine"
    assert "exists already; choose another name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"\xff", "is not UTF-8 text"), (b"{", "not valid YAML"), (b"", "give it what `kubectl get svc,")],
)
def test_what_cannot_be_read(data: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "printout").write_bytes(data)
    assert type_in(str(tmp_path / "printout")) == ExitCode.SCENARIO
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert type_in(str(tmp_path / "printout")) == ExitCode.SCENARIO
    assert "printout: No such file or directory" in capsys.readouterr().err


def test_a_cluster_of_which_no_lab_can_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = k3s()
    cluster.services[1]["spec"]["ports"][0]["name"] = "Not A Name"
    (tmp_path / "printout").write_text(cluster.json())
    assert type_in(str(tmp_path / "printout")) == ExitCode.SCENARIO
    assert "standard output:" in capsys.readouterr().err


def test_a_cluster_with_nothing_to_dial_passes_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, written = k3s(), tmp_path / "mine.lab.yaml"
    cluster.services[:] = [each for each in cluster.services if each["spec"]["type"] == "ExternalName"]
    (tmp_path / "printout").write_text(cluster.json())
    assert type_in(str(tmp_path / "printout"), "-o", str(written)) == ExitCode.OK
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["check", str(written)])
    assert (ended.value.code, capsys.readouterr().out) == (ExitCode.OK, f"{written}: ok, 0 probes\n")


def test_what_check_would_find_too_large_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "mine.lab.yaml"
    (tmp_path / "printout").write_text(k3s().json())
    assert type_in(str(tmp_path / "printout"), "-o", str(written), "--name", "x" * MOST_BYTES) == ExitCode.SCENARIO
    assert "the file has more than 64 MiB; split the scenario" in capsys.readouterr().err
    assert not written.exists()
