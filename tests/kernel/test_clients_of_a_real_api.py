"""Clients that Kubernetes' users write or install, against a lab with a real control plane: Python, Go, helm."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, wait_for
from test_real_control_plane import answers, program, started
from test_real_control_plane import pytestmark as needs_control_plane

# The verbs of kubectl, which asks the same API, run in every run. What a client is built from is loaded first.
pytestmark = [needs_control_plane, pytest.mark.thorough, pytest.mark.timeout(1500)]

CLIENTS = Path(__file__).parent / "clients"
BUILD_SECONDS = 1200
SECONDS = 180

HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
CHART = {
    "Chart.yaml": "apiVersion: v2\nname: shop\nversion: 0.1.0\n",
    "values.yaml": "replicas: 2\nport: 8080\n",
    "templates/shop.yaml": """\
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {port: {{ .Values.port | quote }}}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {selector: {app: {{ .Release.Name }}}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      serviceAccountName: {{ .Release.Name }}
      containers:
      - name: shop
        image: shop
        ports: [{name: http, containerPort: {{ .Values.port }}}]
""",
}


def built(folder: Path, *commands: tuple[str, ...], **environment: str) -> None:
    """Run commands of Go or pip; what these cannot get here is a reason to skip."""
    for argv in commands:
        if shutil.which(argv[0]) is None:
            pytest.skip(f"needs {argv[0]}")
        done = subprocess.run(
            argv, cwd=folder, env={**os.environ, "GOTOOLCHAIN": "auto", "CGO_ENABLED": "0", **environment},
            capture_output=True, text=True, timeout=BUILD_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            pytest.skip(
                f"needs the modules of {' '.join(argv)}, which cannot be had here: {done.stderr.strip()[-300:]}"
            )


def test_the_python_client_scales_watches_and_reads_logs(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "python"
    folder.mkdir()
    (folder / "watching.py").write_text((CLIENTS / "watching.py.txt").read_text())
    built(folder, (sys.executable, "-m", "pip", "install", "--quiet", "--target", "packages", "kubernetes"))
    kubectl = started(cli, tmp_path)
    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080")
    kubectl("expose", "deployment", "shop", "--port=80", "--target-port=8080")
    address = kubectl("get", "pod", "echo-1", "-o", "jsonpath={.status.podIP}")
    assert answers(cli, f"http://{address}:8080/") == {"echo-1"}
    environment = {**os.environ, "PYTHONPATH": str(folder / "packages")}
    argv = [sys.executable, "watching.py", str(tmp_path / "kubeconfig")]
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.stdout == "three are ready\n3 pods\n1 lines\n", done.stderr[-2000:]


def test_an_informer_in_go_sees_endpoints_and_pods_come_and_go(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "go"
    folder.mkdir()
    (folder / "main.go").write_text((CLIENTS / "informing.go.txt").read_text())
    said = subprocess.run((program(), "--version"), capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    version = "v0" + said.split()[-1].removeprefix("v1")  # that of the API's own modules
    modules = [f"k8s.io/{each}@{version}" for each in ("client-go", "api", "apimachinery")]
    built(folder, ("go", "mod", "init", "proxylab.invalid/informing"), ("go", "get", *modules), ("go", "mod", "tidy"),
          ("go", "build", "-o", "informing", "."))  # fmt: skip
    kubectl = started(cli, tmp_path)
    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080")
    kubectl("expose", "deployment", "shop", "--port=80", "--target-port=8080")
    argv = [str(folder / "informing"), str(tmp_path / "kubeconfig")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout == "synced\n4 are ready\n1 are ready\n3 have gone\n", done.stderr[-2000:]


def test_helm_installs_upgrades_and_uninstalls_a_chart_without_hooks(cli: CommandLine, tmp_path: Path) -> None:
    chart, home = tmp_path / "shop", tmp_path / "home"
    for name, text in CHART.items():
        (chart / name).parent.mkdir(parents=True, exist_ok=True)
        (chart / name).write_text(text)
    home.mkdir()
    built(tmp_path, ("go", "install", HELM), GOBIN=str(tmp_path / "bin"))
    kubectl = started(cli, tmp_path)

    def helm(*words: str) -> str:
        environment = {"PATH": os.defpath, "HOME": str(home), "KUBECONFIG": str(tmp_path / "kubeconfig")}
        argv = [str(tmp_path / "bin/helm"), *words]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    assert "STATUS: deployed" in helm("install", "web", str(chart), "--wait", "--timeout", "60s")
    address = kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    wait_for(lambda: len(answers(cli, f"http://{address}/", times=20)) == 2, "both pods to answer")
    assert all(each.startswith("web-") for each in answers(cli, f"http://{address}/", times=20))
    helm("upgrade", "web", str(chart), "--set", "replicas=3", "--set", "port=9090", "--wait", "--timeout", "60s")
    wait_for(lambda: len(answers(cli, f"http://{address}/", times=30)) == 3, "three new pods to answer")
    helm("rollback", "web", "1", "--wait", "--timeout", "60s")
    wait_for(lambda: len(answers(cli, f"http://{address}/", times=20)) == 2, "the two pods of the first revision")
    assert [each["revision"] for each in json.loads(helm("history", "web", "-o", "json"))] == [1, 2, 3]
    helm("uninstall", "web", "--wait", "--timeout", "60s")
    assert json.loads(helm("list", "-o", "json")) == []
    left = kubectl("get", "services,deployments,configmaps,serviceaccounts,pods", "-o", "name").split()
    assert [each for each in left if "/web" in each] == []
