"""`python -m bench NAME`: every number the project claims can be measured again with one command.

A benchmark is a module of this package with `async def run(*, quick: bool) -> Report`; it is listed
here with what it measures.
"""

from __future__ import annotations

import argparse
import importlib
import sys

import uvloop

from bench.common import Report, Unusable, say
from paddock.ports.errors import StoreError

BENCHMARKS = {
    "burst": "bursts of jobs on a real control plane: jobs per second, and what each costs",
    "claims": "claims per second beside other queues on PostgreSQL, within limits and without",
    "dispatch": "from a webhook to the JIT in a Pod's hands, and what idle Pods cost",
    "fleet": "dispatch in a small fleet and in a large one: what grows, and by how much",
    "runner": "a thousand jobs of a runner program of others: its own time per job, and paddock's",
    "tls": "what TLS costs the server: processor time per poll, memory per held poll",
    "watch": "Pods followed per second and in how much memory, beside kubernetes_asyncio and kopf",
    "webhooks": "webhooks per second to a durable row, beside Flask with psycopg",
}

#: The benchmark that each further option belongs to.
_OPTIONS = {"github_latency": "burst", "commit_ms": "dispatch"}


def main() -> int:
    options = _options()
    benchmark = importlib.import_module(f"bench.{options.name}")
    more = {name: value for name in _OPTIONS if (value := getattr(options, name)) is not None}
    try:
        report: Report = uvloop.run(benchmark.run(quick=options.quick, **more))
    except (Unusable, StoreError) as error:
        say(f"{options.name}: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"{options.name}: stopped; nothing was measured to its end")
        return 130
    report.print_json() if options.json else report.print()
    return 0


def _options() -> argparse.Namespace:
    width = max(map(len, BENCHMARKS))
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measure paddock beside peers at their own best settings, on this machine.",
        epilog="benchmarks:\n"
        + "\n".join(f"  {name:<{width}}  {what}" for name, what in BENCHMARKS.items()),
    )
    parser.add_argument("name", choices=BENCHMARKS, metavar="NAME", help="one of those below")
    parser.add_argument("--quick", action="store_true", help="a fifth of the time, more noise")
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on stdout, no tables"
    )
    parser.add_argument(
        "--github-latency",
        type=float,
        metavar="SECONDS",
        help="burst only: how long each call to GitHub takes",
    )
    parser.add_argument(
        "--commit-ms",
        type=float,
        metavar="MS",
        help="dispatch only: how much longer PostgreSQL takes for each commit",
    )
    options = parser.parse_args()
    for name, benchmark in _OPTIONS.items():
        if getattr(options, name) is not None and options.name != benchmark:
            parser.error(f"--{name.replace('_', '-')} is an option of the benchmark {benchmark}")
    return options


if __name__ == "__main__":
    sys.exit(main())
