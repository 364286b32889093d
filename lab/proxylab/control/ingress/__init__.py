"""The Ingress controller of a lab: real nginx processes in pods, configured from Ingresses, HTTPRoutes and slices.

``proxylab.cluster.http_routes`` says where a request goes, ``nginx_conf`` writes that for nginx, and ``controller``
runs nginx and follows the cluster. Another controller replaces the last two.
"""
