"""Route netlink and connection tracking by pyroute2: building namespaces, links, addresses and routes, and reading."""
