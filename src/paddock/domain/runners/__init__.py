"""A runner: its row, its program, and how it ended."""
