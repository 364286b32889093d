"""``proxylab init``: write a commented example scenario. It never overwrites a file."""

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

  probes:
  - name: a pod reaches the Service and keeps its source address
    from: client
    to: {service: echo, via: clusterIP}
    expect: {outcome: delivered, source: preserved}

  # An uneven spread over two backends shows in 941 flows or more; `proxylab check` warns if there are fewer.
  - name: connections spread evenly over both backends
    from: client
    to: {service: echo, via: clusterIP}
    send: {as: packet, flows: 1000}
    expect: {outcome: delivered, backends: [echo-1, echo-2], source: preserved, spread: even}

  - name: a Service without endpoints rejects an outside host
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
spec: {selector: {app: none}, ports: [{port: 80}]}
"""


@click.command("init", short_help="Write a commented example scenario.")
@click.argument("file", required=False, default="example.lab.yaml", type=click.Path(path_type=Path))
def command(*, file: Path) -> ExitCode:
    """Write a commented example scenario to FILE, by default example.lab.yaml. An existing file is left alone.

    Example: proxylab init my-first.lab.yaml
    """
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(TEXT)
    except FileExistsError:
        raise click.UsageError(f"{file} exists already; choose another name") from None
    except OSError as error:
        raise click.UsageError(f"cannot write {file}: {error.strerror}; name another file") from None
    click.echo(f"wrote {file}; try\n  proxylab check {file}\n  proxylab run {file}")
    return ExitCode.OK
