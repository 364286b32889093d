"""``proxylab migrate``: what changes for Services and clients when another proxy takes over; it uses the audit."""
