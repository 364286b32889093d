"""``proxylab init``: a scenario to begin with.

Owns: its text.
Must not: overwrite anything.
"""

from pathlib import Path
from typing import Final

import click

from proxylab.errors import ExitCode

__all__ = ["TEXT", "command"]

TEXT: Final = """\
# A scenario: a cluster, what is sent through it, and what must become of that.
#   proxylab check FILE   says every mistake in it          proxylab plan FILE    shows what it would be made of
#   proxylab run FILE     builds it and judges each probe   proxylab schema       prints the whole format
apiVersion: proxylab/v1
kind: Scenario
metadata:
  name: my-first-scenario
  description: A pod reaches the pods behind a Service, and they see the pod that dialled.
spec:
  # Nodes by name. Each is a network namespace with a Service proxy in it.
  nodes: {node-a: {}, node-b: {}}

  # Pods by name; replicas are called echo-1 and echo-2, and take the nodes in turn.
  pods:
    echo: {replicas: 2, nodes: [node-a, node-b], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}

  # Machines outside the cluster, behind a router.
  hosts: {outside: {}}

  probes:
  - name: a pod is served and keeps its address
    from: client
    to: {service: echo, via: clusterIP}
    expect: {outcome: delivered, source: preserved}

  # 941 flows or more are needed to show an uneven spread over two backends; check says so if there are fewer.
  - name: both backends get their share
    from: client
    to: {service: echo, via: clusterIP}
    send: {as: packet, flows: 1000}
    expect: {outcome: delivered, backends: [echo-1, echo-2], source: preserved, spread: even}

  - name: nobody is behind the other Service, and the client hears so at once
    from: outside
    to: {service: empty, via: clusterIP, node: node-a}
    expect: {outcome: rejected}
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
spec: {selector: {app: nobody}, ports: [{port: 80}]}
"""


@click.command("init", short_help="Write a commented scenario to begin with.")
@click.argument("file", required=False, default="example.lab.yaml", type=click.Path(path_type=Path))
def command(*, file: Path) -> ExitCode:
    """Write a commented scenario to FILE, by default example.lab.yaml. What is there already is left alone.

    Example: proxylab init my-first.lab.yaml
    """
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(TEXT)
    except FileExistsError:
        raise click.UsageError(f"{file} is there already; choose another name") from None
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {error.strerror}; name another file") from None
    click.echo(f"{file} is written; try\n  proxylab check {file}\n  proxylab run {file}")
    return ExitCode.OK
