"""Route netlink: building namespaces, links, addresses and routes, and reading them back."""
