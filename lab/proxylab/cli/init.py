"""``proxylab init``: write a commented example scenario, copy one of the catalogue, or set up a repository.

It never overwrites a file.
"""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from textwrap import indent
from typing import Annotated, Final

import click

from proxylab.cli.catalogue import complete_names, copies, the_scenario
from proxylab.cli.file_arguments import write_new
from proxylab.cli.options import argument, option, takes
from proxylab.cli.output_paths import OutputFile
from proxylab.cli.repository import files
from proxylab.cli.standard_streams import echo
from proxylab.errors import ExitCode

TEXT: Final = """\
# A scenario: a cluster, and what is sent through it. Kubernetes' documents say what must become of that.
#   proxylab check FILE   says every mistake in it          proxylab plan FILE      shows what it would be made of
#   proxylab run FILE     builds it and judges each probe   proxylab expected FILE  prints what must happen, and why
#   proxylab schema       prints the whole format
apiVersion: proxylab/v1
kind: Scenario
metadata:
  name: my-first-scenario
  description: A pod reaches the pods behind a Service, and they see the pod's address.
spec:
  # Nodes by name. Each is a network namespace with a Service proxy in it.
  nodes: {node-a: {}, node-b: {}}

  # Pods by name. The replicas are called echo-1 and echo-2, and run on the nodes in turn.
  pods:
    echo: {replicas: 2, nodes: [node-a, node-b], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}

  # Machines outside the cluster, behind a router.
  hosts: {outside: {}}

  # A probe without `expect` is judged by all that Kubernetes promises. State what you promise yourself, such as
  #   expect: {outcome: delivered, backends: [echo-1, echo-2], source: preserved, spread: even}
  # and those keys are judged instead; `also: promises` in it adds the rest.
  probes:
  - name: a pod reaches the Service and keeps its source address
    from: client
    to: {service: echo, via: clusterIP}

  # An uneven spread over two backends shows in 941 flows or more.
  - name: connections spread evenly over both backends
    from: client
    to: {service: echo, via: clusterIP}
    send: {as: packet, flows: 1000}

  - name: a Service without endpoints rejects an outside host
    from: outside
    to: {service: empty, via: clusterIP, node: node-a}
---
# Kubernetes manifests, as you have them; what an API server would fill in is filled in.
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {selector: {app: none}, ports: [{port: 80}]}
"""


@click.command("init", short_help="Write an example scenario, or set up a repository.")
@takes
def command(
    *,
    file: Annotated[Path | None, argument(required=False, type=OutputFile(new=True))],
    name: Annotated[
        str | None,
        option(
            "--from",
            metavar="NAME",
            callback=the_scenario,
            shell_complete=complete_names,
            help="Copy this scenario of the catalogue, such as clusterip/from-a-pod, with its Python test where it has "
            "one.",
        ),
    ],
    repo: Annotated[
        bool,
        option(
            "--repo",
            is_flag=True,
            help="Set up the repository in this folder: a scenario and a Python test in tests/, tox.ini, .gitignore, "
            "and workflows for GitHub and GitLab.",
        ),
    ],
) -> ExitCode:
    """Write a commented example scenario to FILE, by default example.lab.yaml. An existing file is left alone.

    With --from, FILE is a copy of a scenario that comes with proxylab, by default under its own name.
    With --repo, files that exist are left alone, too, and what would be in them is printed.

    Example: proxylab init my-first.lab.yaml
    """
    if repo:
        if file is not None or name is not None:
            raise click.UsageError("--repo writes to this folder: give neither FILE nor --from with it")
        _set_up()
    elif name is None:
        _write({file or Path("example.lab.yaml"): TEXT})
    else:
        _write(copies(name, file or Path(f"{PurePosixPath(name).name}.lab.yaml")))
    return ExitCode.OK


def _set_up() -> None:
    """Write the files of a repository, and print what is left to do."""
    written = files(TEXT)
    for path, text in written.items():
        file = Path(path)
        if os.path.lexists(file):
            echo(f"{file} exists already; add to it what you lack of\n\n{indent(text, '  ')}")
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        write_new(file, text)
        echo(f"wrote {file}")
    echo("try\n  pytest tests\n  tox -e lab")
    echo("commit them, but not the evidence of failed probes in .proxylab/:")
    echo(f"  git add {' '.join(map(str, written))}")


def _write(texts: Mapping[Path, str]) -> None:
    """Write the files, or none if one of them exists, and print what to do with each."""
    for file in filter(os.path.lexists, texts):
        raise click.UsageError(f"{file} exists already; choose another name")
    for file, text in texts.items():
        write_new(file, text)
        then = [f"pytest {file}"] if file.suffix == ".py" else [f"proxylab check {file}", f"proxylab run {file}"]
        echo("\n  ".join([f"wrote {file}; try", *then]))
