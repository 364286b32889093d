"""A table of kubectl's verbs, to be typed in turn in a lab of two nodes: each line, and what kubectl must say.

``SINCE`` has the minor with which a verb has come.
"""

MANIFESTS = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: db, ports: [{containerPort: 5432}]}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: agent, ports: [{containerPort: 9100}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 5432}]}
"""

SINCE = {"events": 26}

VERBS = (
    ("version", r"Server Version: v1\."),
    ("api-resources --api-group=discovery.k8s.io", r"endpointslices +discovery.k8s.io/v1 +true +EndpointSlice"),
    ("explain service.spec.internalTrafficPolicy", r"FIELD: +internalTrafficPolicy"),
    ("auth can-i create services", r"yes"),
    ("apply -f FILE", r"statefulset.apps/db created"),
    ("apply -f FILE", r"daemonset.apps/agent unchanged"),
    ("apply --server-side --force-conflicts -f FILE", r"service/db serverside-applied"),
    ("diff -f FILE", r"^$"),
    ("rollout status statefulset/db --timeout=40s", r"complete: 2 new pods"),
    ("rollout status daemonset/agent --timeout=40s", r"successfully rolled out"),
    ("get pods db-0 db-1 -o name", r"pod/db-0\npod/db-1"),
    ("get pods -l app=agent -o jsonpath={.items[*].spec.nodeName}", r"node-[ab] node-[ab]"),
    ("create deployment web --image=web:1 --port=8080 --replicas=2", r"deployment.apps/web created"),
    ("rollout status deployment/web --timeout=40s", r"successfully rolled out"),
    ("expose deployment web --port=80 --target-port=8080", r"service/web exposed"),
    ("run one --image=one --port=80 --labels=app=one", r"pod/one created"),
    ("wait --for=condition=Ready pod/one --timeout=40s", r"condition met"),
    ("get all", r"(?s)pod/one .*service/web .*deployment.apps/web .*replicaset.apps/web-.*statefulset.apps/db"),
    ("get leases -n kube-node-lease", r"node-a +node-a"),
    ("get nodes -o wide", r"node-a +Ready .* proxylab"),
    ("get pods -o wide -l app=web", r"web-\S+ +1/1 +Running +0 .* node-"),
    ("get services,endpointslices -o name", r"endpointslice.discovery.k8s.io/web-"),
    ("describe service web", r"Endpoints: +10\.244\.\d\.\d+:8080,10\.244"),
    ("describe pod one", r"Status: +Running"),
    ("describe node node-b", r"(?s)Ready +True.*KubeletReady"),
    ("scale deployment/web --replicas=3", r"scaled"),
    ("patch service web -p {\"spec\":{\"sessionAffinity\":\"ClientIP\"}}", r"service/web patched"),
    ("label pod one tier=back", r"labeled"),
    ("annotate pod one why=test", r"annotated"),
    ("set image deployment/web web=web:2", r"image updated"),
    ("rollout status deployment/web --timeout=40s", r"successfully rolled out"),
    ("rollout history deployment/web", r"(?s)1 .*2 "),
    ("rollout undo deployment/web", r"rolled back"),
    ("rollout restart deployment/web", r"restarted"),
    ("rollout status deployment/web --timeout=40s", r"successfully rolled out"),
    ("edit service web", r"service/web edited"),
    ("get service web -o yaml", r"(?s)sessionAffinity: ClientIP.*type: ClusterIP"),
    ("get services -l app=web --sort-by=.metadata.name -o custom-columns=N:.metadata.name", r"^N\nweb$"),
    ("get service web -o jsonpath={.metadata.labels.edited}", r"^by-sed$"),
    ("logs one", r"^$"),
    ("exec one -- hostname -I", r"10\.244\."),
    ("debug one --image=tool --container=tool", r""),
    ("wait --for=jsonpath={.status.ephemeralContainerStatuses[0].name}=tool pod/one --timeout=40s", r"condition met"),
    ("exec --container=tool one -- hostname -I", r"10\.244\."),
    ("create job once --image=once", r"job.batch/once created"),
    ("wait --for=condition=complete job/once --timeout=40s", r"condition met"),
    ("logs job/once", r"^$"),
    ("delete job once", r"job.batch \"once\" deleted"),
    ("events --types=Normal", r"ScalingReplicaSet"),
    ("taint node node-b dedicated=db:NoSchedule", r"tainted"),
    ("taint node node-b dedicated-", r"untainted"),
    ("delete pod one --now", r"pod \"one\" deleted"),
    ("cordon node-b", r"node/node-b cordoned"),
    ("get node node-b", r"Ready,SchedulingDisabled"),
    ("drain node-b --ignore-daemonsets --force --timeout=60s", r"node/node-b drained"),
    ("get pods -l app=web --field-selector=spec.nodeName=node-b", r"No resources found"),
    ("rollout status deployment/web --timeout=40s", r"successfully rolled out"),
    ("uncordon node-b", r"node/node-b uncordoned"),
    ("delete -f FILE", r"statefulset.apps \"db\" deleted"),
    ("delete service,deployment web", r"deployment.apps \"web\" deleted"),
    ("wait --for=delete pod -l app=web --timeout=40s", r""),
    ("get pods -l app=web", r"No resources found"),
)  # fmt: skip
