"""What FILE of ``migrate`` may be besides a scenario: manifests, and every dump that ``import`` reads."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from dump_folders import printed_dump, write_dump, write_must_gather
from fake_lab import FakeSession
from kubectl_clusters import cloud, k3s

from proxylab.cli import main
from proxylab.errors import ExitCode, ScenarioError
from proxylab.features.import_.reading import dump_files
from proxylab.features.migrate.cluster_of_file import ClusterOfFile, cluster_of_dump, cluster_of_manifests, is_dump

MANIFESTS = """
apiVersion: v1
kind: Service
metadata:
  name: web
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"note":"{\\"kind\\":\\"List\\"}"}'}
spec: {selector: {app: web}, ports: [{port: 80}]}
"""


def read(file: Path) -> ClusterOfFile:
    return cluster_of_dump([(str(each), each.read_text()) for each in dump_files(file)], str(file))


def services(found: ClusterOfFile) -> set[tuple[str, str]]:
    return {(each.namespace, each.name) for each in found.scenario.services}


@pytest.mark.parametrize(
    "printed",
    [
        k3s().yaml(),
        k3s().json(),
        json.dumps(json.loads(k3s().json()), separators=(",", ":")),
        printed_dump(k3s(), "json"),
        printed_dump(k3s(), "yaml"),
    ],
    ids=["yaml", "json", "in one line", "cluster-info in json", "cluster-info in yaml"],
)
def test_what_kubectl_prints_of_a_cluster_is_a_dump(printed: str, tmp_path: Path) -> None:
    assert is_dump(printed)
    (tmp_path / "dump").write_text(printed)
    assert services(read(tmp_path / "dump")) == {
        (each["metadata"]["namespace"], each["metadata"]["name"]) for each in k3s().services
    }


@pytest.mark.parametrize("write", [write_must_gather, functools.partial(write_dump, form="yaml")])
def test_so_is_a_folder(write: Callable[..., None], tmp_path: Path) -> None:
    write(cloud(), tmp_path / "folder")
    found = read(tmp_path / "folder")
    assert services(found) == {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in cloud().services}
    assert [each for each in found.left_out if "--service-cidr" in each]


def test_manifests_are_none_and_lack_nothing() -> None:
    assert not is_dump(MANIFESTS)
    found = cluster_of_manifests(MANIFESTS, "web.yaml")
    assert (services(found), found.left_out) == ({("default", "web")}, ())


def test_a_scenario_with_a_list_of_objects_stays_a_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own mistakes are told, not those of a dump."""
    file = tmp_path / "a.lab.yaml"
    file.write_text(
        "apiVersion: proxylab/v1\nkind: Scenario\nmetadata: {name: a}\nspec: {}\n---\nkind: List\nitems: []\n"
    )
    asked = ["migrate", str(file), "--from", "embedded/iptables", "--to", "embedded/nftables"]
    with pytest.raises(SystemExit) as ended:
        main(asked, make_session=functools.partial(FakeSession, tmp_path / "journal"))
    assert ended.value.code == ExitCode.SCENARIO
    assert "spec" in capsys.readouterr().err


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no file of Services, pods or nodes there"):
        dump_files(tmp_path)
