"""Benchmarks beside peers, on one machine, in one run: `python -m bench --help`."""
