"""``proxylab migrate``: what changes for Services, and for whom, when another proxy takes over; on top of the audit."""
