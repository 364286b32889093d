"""``repro.sh`` of a failed probe's bundle shows the failure again, without proxylab, as root and as an ordinary user.

``failing_probes`` says in which ways the labs are broken.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from failing_probes import BROKEN, Broken
from played_scripts import Played, edited, played
from sandboxed import ROOT, USERS


@dataclass(frozen=True)
class Told:
    """The script of one case, what it said to each user, and what it says once it is mended."""

    script: Path
    said: Mapping[str, Future[Played]]
    mended: Future[Played] | None


def scripts_of(together: Sequence[Broken], folder: Path) -> list[Path]:
    """The script of each of these, which are broken by the same patch if by any, and run at once."""
    files = []
    for number, broken in enumerate(together):
        text = (ROOT / broken.scenario).read_text(encoding="utf-8")
        for old, new in broken.edits:
            assert old in text
            text = text.replace(old, new, 1)
        files.append(folder / f"broken-{number}.lab.yaml")
        files[-1].write_text(text, encoding="utf-8")
    (folder / "sitecustomize.py").write_text(together[0].patch, encoding="utf-8")
    names = dict.fromkeys(name for broken in together for name in (broken.before, broken.probe) if name)
    done = subprocess.run(
        [sys.executable, "-m", "lab", "run", *(file.name for file in files),
         *(word for name in names for word in ("--probe", name)), "--bundle-dir", "kept"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    found = [list((folder / "kept").glob(f"*/broken-{number}/*/repro.sh")) for number in range(len(together))]
    assert all(len(each) == 1 for each in found), done.stdout + done.stderr
    return [script for each in found for script in each]


def played_by_all(together: Sequence[Broken], folder: Path) -> dict[str, Told]:
    """What the script of each said. Most of a script's time is silence, so they are run at once."""
    told = {}
    with ThreadPoolExecutor(4) as pool:
        for broken, script in zip(together, scripts_of(together, folder), strict=True):
            said = {who: pool.submit(played, script, ordinary=ordinary) for who, ordinary in USERS.items()}
            mended = pool.submit(played, edited(script, broken.mended), ordinary=False) if broken.mended else None
            told[broken.name] = Told(script, said, mended)
    return told


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[dict[str, Told]]]]:
    """The scripts of all that are asked for, by the name of what is broken."""
    asked = [
        item.callspec.params["broken"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == Path(__file__) and hasattr(item, "callspec")
    ]
    by_patch: dict[tuple[str, str], dict[str, Broken]] = {}
    for broken in asked:
        by_patch.setdefault((broken.patch, broken.before), {})[broken.name] = broken
    with ThreadPoolExecutor(2) as pool:
        found = {}
        for together in by_patch.values():
            future = pool.submit(played_by_all, tuple(together.values()), tmp_path_factory.mktemp("broken"))
            found |= dict.fromkeys(together, future)
        yield found


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_the_script_of_a_bundle_shows_the_failure_without_proxylab(
    broken: Broken, told: Mapping[str, Future[dict[str, Told]]]
) -> None:
    for who, future in told[broken.name].result()[broken.name].said.items():
        done = future.result()
        assert done.returncode == 1, f"{who}:\n{done.stdout}{done.stderr}"
        for words in (*broken.says, "The failure shows again."):
            assert words in done.stdout, f"{who}:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("broken", [each for each in BROKEN if each.mended], ids=lambda broken: broken.name)
def test_the_script_sees_when_it_is_mended(broken: Broken, told: Mapping[str, Future[dict[str, Told]]]) -> None:
    future = told[broken.name].result()[broken.name].mended
    assert future is not None
    done = future.result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All is as it was expected" in done.stdout


@pytest.mark.parametrize("broken", BROKEN[:1], ids=lambda broken: broken.name)
def test_a_script_that_cannot_rebuild_its_case_says_so(
    broken: Broken, told: Mapping[str, Future[dict[str, Told]]]
) -> None:
    script = told[broken.name].result()[broken.name].script
    done = played(edited(script, (("-restore <<", "-restore --nonsense <<"),)), ordinary=False)
    assert done.returncode == 2
    assert done.stderr.endswith("the case could not be rebuilt\n")
