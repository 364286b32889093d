"""The lab process: its life, its conversation with clients, and the lab that it holds."""
