"""The lab process: its life, its connections to clients, and its lab."""
