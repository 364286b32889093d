"""What a probe, a stream or a step may be expected to show: a module for each expectation, and the tables of them."""
