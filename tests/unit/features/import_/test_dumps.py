"""What people attach to bug reports: the dump of ``kubectl cluster-info``, printed or in a folder, and must-gather."""

import json
from pathlib import Path

import click
import pytest
from dump_folders import cluster_info_dump, printed_dump, write_dump, write_must_gather
from growing_cluster import Cluster
from kubectl_clusters import k3s

from proxylab.cli import main
from proxylab.errors import ExitCode, ScenarioError
from proxylab.features.import_.importing import import_cluster
from proxylab.features.import_.reading import KubectlOutput, is_of_use, read_kubectl_output


def imported(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["import", *arguments])
    return int(str(ended.value.code))


def named(output: KubectlOutput) -> tuple[set[tuple[str, str]], ...]:
    return tuple(
        {(each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in those}
        for those in (output.services, output.pods, output.nodes)
    )


def scenario(text: str) -> str:
    """The file without its head, which says what kubectl's output lacks."""
    return text[text.index("apiVersion: proxylab/v1") :]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_printed_dump_has_the_objects_of_its_lists_and_none_of_its_logs(form: str) -> None:
    whole, dumped = read_kubectl_output([("x", k3s().json())]), read_kubectl_output([("x", printed_dump(k3s(), form))])
    assert named(dumped) == named(whole)
    assert dumped.others == {}


def test_a_log_that_ends_without_a_line_break_ends_at_its_mark() -> None:
    printed = printed_dump(k3s(), "json").replace("---\n==== END", "kind: Service==== END")
    assert "Service==== END" in printed
    assert named(read_kubectl_output([("x", printed)])) == named(read_kubectl_output([("x", k3s().json())]))


def test_a_dump_becomes_the_scenario_of_the_same_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its Services have the endpoints that their selectors choose, so the probes are those of the whole output."""
    cluster = without_own_slices(k3s())
    (tmp_path / "whole.json").write_text(cluster.json())
    write_dump(cluster, tmp_path / "dump", "json")
    texts = []
    for file in ("whole.json", "dump"):
        assert imported(str(tmp_path / file)) == ExitCode.OK
        text = capsys.readouterr().out
        texts.append(sorted(text[text.index("  probes:") : text.index("\n---")].splitlines()))
    assert texts[0] == texts[1]
    assert len([line for line in texts[0] if "- name:" in line]) > 20


def test_a_dump_names_services_whose_endpoints_nothing_tells() -> None:
    said = "endpoints of Services without selector, which have none here: "
    dumped = import_cluster(read_kubectl_output([("x", printed_dump(k3s(), "json"))]), "x")
    assert f"{said}data/warehouse, default/kubernetes" in dumped.left
    assert not any(each.startswith(said) for each in import_cluster(output_of(k3s()), "x").left)


def test_a_service_without_a_selector_has_no_pods_where_nothing_tells_its_endpoints() -> None:
    """The lab derives none for it either, and a pod that no Service needs stays out."""
    service = {
        "kind": "Service",
        "metadata": {"name": "a"},
        "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]},
    }
    status = {"podIP": "10.244.0.7"}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "b", "labels": {"app": "b"}},
        "spec": {"nodeName": "n"},
        "status": status,
    }
    done = import_cluster(read_kubectl_output([("x", json.dumps(service)), ("y", json.dumps(pod))]), "x")
    assert "pods to which no Service sends: default/b" in done.left


def without_own_slices(cluster: Cluster) -> Cluster:
    """The cluster without Services whose slices are written by hand, since a dump has none of those."""
    chosen = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in cluster.services
        if each["spec"].get("selector") or each["spec"].get("type") == "ExternalName"
    }
    cluster.services[:] = [
        each for each in cluster.services if (each["metadata"]["namespace"], each["metadata"]["name"]) in chosen
    ]
    cluster.slices[:] = [
        each
        for each in cluster.slices
        if (each["metadata"]["namespace"], each["metadata"]["labels"]["kubernetes.io/service-name"]) in chosen
    ]
    return cluster


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_folder_of_cluster_info_is_what_it_prints(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dump(k3s(), tmp_path / "dump", form)
    (tmp_path / "printed").write_text(printed_dump(k3s(), form))
    texts = []
    for file in ("dump", "printed"):
        assert imported(str(tmp_path / file)) == ExitCode.OK
        texts.append(capsys.readouterr().out)
    assert sorted(texts[0].splitlines()) == sorted(texts[1].splitlines())  # files come in the order of their names


def test_a_folder_of_must_gather_has_slices_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = k3s()
    cluster.nodes.sort(key=lambda node: str(node["metadata"]["name"]))  # as files come
    write_must_gather(cluster, tmp_path / "gathered")
    (tmp_path / "whole.json").write_text(cluster.json())
    texts = []
    for file in ("gathered", "whole.json"):
        assert imported(str(tmp_path / file)) == ExitCode.OK
        texts.append(capsys.readouterr().out)
    assert sorted(scenario(texts[0]).splitlines()) == sorted(scenario(texts[1]).splitlines())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("dump/nodes.json", True),
        ("dump/shop/services.json", True),
        ("dump/shop/pods.yaml", True),
        ("dump/shop/events.json", False),
        ("dump/shop/web-1/logs.txt", False),
        ("g/cluster-scoped-resources/core/nodes/worker-1.yaml", True),
        ("g/cluster-scoped-resources/networking.k8s.io/servicecidrs/kubernetes.yaml", True),
        ("g/namespaces/shop/discovery.k8s.io/endpointslices.yaml", True),
        ("g/namespaces/shop/core/endpoints.yaml", True),
        ("g/namespaces/shop/core/secrets.yaml", False),
        ("g/namespaces/shop/core/configmaps.yaml", False),
        ("g/namespaces/kube-system/core/configmaps.yaml", True),
        ("g/namespaces/shop/pods/web-1/web-1.yaml", False),
        ("g/namespaces/shop/shop.yaml", False),
    ],
)
def test_files_of_a_folder_are_chosen_by_name_and_place(path: str, expected: bool) -> None:
    assert is_of_use(Path(path)) is expected


def test_a_folder_without_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "events.json").write_text("{}")
    assert imported(str(tmp_path)) == ExitCode.SCENARIO
    assert f"{tmp_path}: no file of Services, pods or nodes there; name the folder that" in capsys.readouterr().err


def test_json_values_on_lines_of_their_own_are_one_output() -> None:
    """As `jq -c '.items[]'` prints them; a text with braces in it is no border."""
    cluster = k3s()
    cluster.nodes[0]["metadata"]["annotations"] = {"a": '}\n{"b'}
    lines = "\n".join(json.dumps(each) for each in cluster.objects)
    assert named(read_kubectl_output([("x", lines)])) == named(read_kubectl_output([("x", cluster.json())]))


def test_a_value_that_is_broken_is_named_by_its_number() -> None:
    with pytest.raises(ScenarioError) as refused:
        read_kubectl_output([("x", '{"kind": "Node", "metadata": {"name": "a"}}\n{"kind": [}\n')])
    assert refused.value.problems[0].startswith("x, value 2:1:")


# What objects need not tell: the ServiceCIDR.


def output_of(cluster: Cluster, *further: dict[str, object]) -> KubectlOutput:
    return read_kubectl_output([("x", json.dumps({"kind": "List", "items": [*cluster.objects, *further]}))])


def service_cidr(name: str, *cidrs: str) -> dict[str, object]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": name},
        "spec": {"cidrs": [*cidrs]},
    }


def test_a_service_cidr_that_no_object_tells_is_a_comment_that_names_the_option() -> None:
    text = import_cluster(output_of(k3s()), "x").text
    assert "#   the ServiceCIDR, which no object tells; give --service-cidr: 10.43.0.0/16 stands for it\n" in text
    assert "serviceCIDR: [10.43.0.0/16]" in text


def test_a_service_cidr_of_the_cluster_is_told_by_its_object() -> None:
    text = import_cluster(output_of(k3s(), service_cidr("kubernetes", "10.40.0.0/14")), "x").text
    assert "serviceCIDR: [10.40.0.0/14]" in text
    assert "--service-cidr" not in text


def test_a_service_cidr_beside_the_cluster_ips_does_not_hold_them() -> None:
    text = import_cluster(output_of(k3s(), service_cidr("further", "10.99.0.0/16")), "x").text
    assert "serviceCIDR: [10.43.0.0/16]" in text
    assert "give --service-cidr" in text


def test_a_given_service_cidr_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = output_of(k3s())
    (tmp_path / "cluster.json").write_text(k3s().json())
    assert objects.service_cidrs == ()
    assert imported(str(tmp_path / "cluster.json"), "--service-cidr", "10.43.0.0/17") == ExitCode.SCENARIO
    assert "--service-cidr 10.43.0.0/17 does not hold the cluster IP 10.43.200.1" in capsys.readouterr().err
    assert imported(str(tmp_path / "cluster.json"), "--service-cidr", "10.43.0.0/15") == click.UsageError.exit_code
    assert "has host bits set; write a network such as 10.96.0.0/12" in capsys.readouterr().err
    both = ("--service-cidr", "10.42.0.0/15", "--service-cidr", "10.42.0.0/16")
    assert imported(str(tmp_path / "cluster.json"), *both) == click.UsageError.exit_code
    assert "name one network of each family" in capsys.readouterr().err
    other = ("--service-cidr", "10.43.0.0/16", "--service-cidr", "fd00::/112")
    assert imported(str(tmp_path / "cluster.json"), *other) == ExitCode.OK
    printed = capsys.readouterr().out
    assert "serviceCIDR: [10.43.0.0/16]" in printed
    assert "#   networks of --service-cidr in whose family the cluster has no address: fd00::/112\n" in printed
    assert "give --service-cidr" not in printed


def test_the_dump_of_these_tests_is_shaped_as_kubectls() -> None:
    first, *rest = cluster_info_dump(k3s())
    assert first[0] == "nodes"
    assert isinstance(first[1], dict)
    assert "kind" not in first[1]["items"][0]
    of_shop = [name for name, _ in rest if name.startswith("shop/")]
    assert of_shop[:3] == ["shop/events", "shop/replication-controllers", "shop/services"]
    assert of_shop[-1].endswith("/logs")
