"""Route netlink: namespaces, links, addresses and routes are made and read back."""
