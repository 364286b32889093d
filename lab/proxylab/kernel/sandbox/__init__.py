"""The private namespaces of a lab process, and the commands that run in them."""
