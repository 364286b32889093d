"""What was seen while a probe ran: observations, counters, connection tracking. Pure data."""
