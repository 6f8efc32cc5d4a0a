"""A pool: its description, and how many runners it should have."""
