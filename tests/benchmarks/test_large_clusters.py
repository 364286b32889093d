"""``check`` and ``import`` of large clusters: the time grows with the number of Services, not with its square.

The time is the processor time of a whole run. Four times as many Services take less than four times as long, because
Python starts once; where each Service looked at each other one they would take up to sixteen times as long.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubectl_objects import listed, yaml_of
from test_check import cpu_seconds

FEW, MANY = 2_500, 10_000
MOST_TIMES = 6
BUDGETS = {"yaml": 6.0, "json": 3.0}
MOST_SECONDS_OF_IMPORT = 5.0
PODS = 400

Raw = dict[str, Any]


def service(number: int) -> Raw:
    address = f"10.96.{1 + number // 250}.{1 + number % 250}"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "creationTimestamp": "2026-03-01T09:00:00Z",
            "labels": {"app": f"web-{number % PODS}"},
            "name": f"web-{number}",
            "namespace": "default",
            "resourceVersion": str(1000 + number),
            "uid": f"6f1c9d0e-0000-4000-8000-{number:012d}",
        },
        "spec": {
            "clusterIP": address,
            "clusterIPs": [address],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
            "selector": {"app": f"web-{number % PODS}"},
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
        "status": {"loadBalancer": {}},
    }


def pod(number: int) -> Raw:
    address = f"10.244.{number // 200}.{2 + number % 200}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"app": f"web-{number}"}, "name": f"web-{number}", "namespace": "default"},
        "spec": {"containers": [{"name": "web", "ports": [{"containerPort": 8080}]}], "nodeName": f"n-{number // 200}"},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
    }


def scenario(folder: Path, services: int, form: str) -> Path:
    """A scenario beside the file of its Services."""
    manifests = folder / f"{services}.{form}"
    objects = listed([service(number) for number in range(services)])
    manifests.write_text(yaml_of(objects) if form == "yaml" else json.dumps(objects, indent=4))
    spec = {
        "nodes": {"node-a": {}, "node-b": {}},
        "pods": {
            f"web-{each}": {"labels": {"app": f"web-{each}"}, "ports": [8080], "nodes": [f"node-{'ab'[each % 2]}"]}
            for each in range(PODS)
        },
        "manifests": [manifests.name],
        "probes": [],
    }
    file = folder / f"{services}.lab.yaml"
    head = {"apiVersion": "proxylab/v1", "kind": "Scenario", "metadata": {"name": "many"}, "spec": spec}
    file.write_text(json.dumps(head))
    return file


def check(tmp_path: Path, services: int, form: str) -> float:
    return cpu_seconds(["-m", "proxylab", "check", str(scenario(tmp_path, services, form))], tmp_path / "cache")


def import_(tmp_path: Path, services: int, form: str = "json", pods: int = PODS) -> float:
    """Services send to the first pods of that many."""
    printed = tmp_path / f"{services}.{form}"
    objects = listed([*map(service, range(services)), *map(pod, range(pods))])
    printed.write_text(yaml_of(objects) if form == "yaml" else json.dumps(objects, indent=4))
    (tmp_path / f"{services}.lab.yaml").unlink(missing_ok=True)
    output = ["-o", str(tmp_path / f"{services}.lab.yaml")]
    return cpu_seconds(["-m", "proxylab", "import", str(printed), *output], tmp_path / "cache")


def times(measure: Callable[[int], float], few: int, many: int) -> float:
    measure(10)  # compiles what is imported
    return measure(many) / measure(few)


@pytest.mark.benchmark
@pytest.mark.parametrize("form", [pytest.param("yaml", marks=pytest.mark.thorough), "json"])  # both are checked alike
def test_check_is_linear_in_services(form: str, tmp_path: Path) -> None:
    assert times(lambda services: check(tmp_path, services, form), FEW, MANY) <= MOST_TIMES


@pytest.mark.benchmark
@pytest.mark.thorough  # a budget; the form json shows the same of check in every run
@pytest.mark.parametrize("pods_too", [False, True])
def test_import_is_linear_in_services(pods_too: bool, tmp_path: Path) -> None:
    """With as many pods as Services, too: a Service finds its pods by their labels, and looks at no other."""

    def measure(services: int) -> float:
        return import_(tmp_path, services, pods=services if pods_too else PODS)

    assert times(measure, 750, 3_000) <= MOST_TIMES


@pytest.mark.budget
@pytest.mark.parametrize("form", BUDGETS)
def test_check_of_10_000_services(form: str, tmp_path: Path) -> None:
    assert min(check(tmp_path, MANY, form) for _ in range(3)) <= BUDGETS[form]


@pytest.mark.budget
@pytest.mark.parametrize("form", BUDGETS)
def test_import_of_3_000_services(form: str, tmp_path: Path) -> None:
    import_(tmp_path, 10)  # compiles what is imported
    seconds = import_(tmp_path, 3_000, form)
    print(f"import of 3,000 Services in {form}: {seconds:.1f} s of a processor")  # noqa: T201
    assert seconds <= MOST_SECONDS_OF_IMPORT
