"""Runs a runner program through its life and its troubles against the fake GitHub."""
