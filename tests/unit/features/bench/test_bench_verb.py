"""What ``proxylab bench`` refuses before a lab is built."""

from pathlib import Path

import pytest
from benched import benched, engine

from proxylab.cli import main
from proxylab.client.session import Session
from proxylab.errors import CapabilityError, ExitCode
from proxylab.features.bench.bench_text import to_json
from proxylab.features.bench.runs import room


class NoSession(Session):
    """A machine that allows no lab."""

    def open(self, *_: object, **__: object) -> None:  # type: ignore[override]
        raise CapabilityError("labs", "use another machine")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--services", "many"), "no numbers of Services"),
        (("--services", "0,10"), "room for 1 to"),
        (("--services", f"10,{room() + 1}"), "room for 1 to"),
        (("--endpoints", "0"), "--endpoints"),
        (("--rounds", "0"), "--rounds"),
        (("--report", "bench.txt"), "must end in .json"),
        (("--report", "nowhere/none/../bench.json", "--engine", "kube-proxy/ebpf"), "--engine"),
        (("--against", "stored.json"), "no benchmark"),
        (("--against", "missing.json"), "missing.json"),
    ],
)
def test_what_is_wrong_is_said_before_a_lab_is_built(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stored.json").write_text('{"kind": "RunReport"}')
    with pytest.raises(SystemExit) as ended:
        main(("bench", *words), make_session=NoSession)
    assert ended.value.code == ExitCode.SCENARIO
    assert said in capsys.readouterr().err


def test_what_cannot_be_measured_is_told_and_ends_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stored.json").write_text(to_json(benched(engine())))
    with pytest.raises(SystemExit) as ended:
        main(("bench", "--against", str(tmp_path / "stored.json")), make_session=NoSession)
    assert ended.value.code == ExitCode.CAPABILITY
    output = capsys.readouterr().out
    assert " ".join(output.split()).count("this machine lacks labs") == 4, (
        "twice in the run, and twice in the comparison"
    )
    assert "compared with the stored run: 0 figures" in output
