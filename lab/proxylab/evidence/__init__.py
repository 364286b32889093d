"""The record of a probe: observations, counters, connection tracking. Pure data."""
