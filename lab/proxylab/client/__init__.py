"""The user's end of a lab: sessions, standing labs, control sockets, bundles on disk."""
