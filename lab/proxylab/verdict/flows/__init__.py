"""The account of each flow: what the taps saw of it, hop by hop, and what became of it, without any expectation."""
