"""Runs a runner program through its life and its faults against the fake GitHub."""
