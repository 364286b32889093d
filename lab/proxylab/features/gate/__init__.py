"""``proxylab gate``: whether a change of kube-proxy may go in, from a checkout or a binary."""
