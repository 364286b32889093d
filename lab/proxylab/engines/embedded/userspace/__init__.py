"""Mode userspace: kube-proxy before 1.26, whose process in each node ends every connection and opens another one.

``rules`` renders the rules that lead to the process, ``writer`` keeps rules and process in step, ``process``
starts and instructs it. ``program`` is the process itself; it chooses endpoints by ``balance``.

The way of a connection::

    PREROUTING (nat) ─┬─▶ KUBE-PORTALS-CONTAINER ── cluster, external, load-balancer IP ─▶ REDIRECT ─┐
                      └─▶ KUBE-NODEPORT-CONTAINER ─ local address, node port ────────────▶ REDIRECT ─┤
    OUTPUT (nat) ─────┬─▶ KUBE-PORTALS-HOST ──────────────────────────────────────────────▶ DNAT ────┤
                      └─▶ KUBE-NODEPORT-HOST ─────────────────────────────────────────────▶ DNAT ────┤
    INPUT (filter) ─────▶ KUBE-NODEPORT-NON-LOCAL ── ACCEPT ◀────────────────────────────────────────┘
    the process: accept ─▶ round robin or the client's last endpoint ─▶ connect from the node's own address
"""
