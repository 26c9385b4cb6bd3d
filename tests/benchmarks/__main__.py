"""The benchmarks: ``python -m infra.native run -- python -m tests.benchmarks`` (or ``make bench``)."""

import argparse
import os
import platform
import signal

from tests.benchmarks import (
    bench_audit,
    bench_footprint,
    bench_messaging,
    bench_pool,
    bench_sandbox,
    bench_steps,
    bench_workspace,
)

BENCHMARKS = {
    "steps": bench_steps.run,
    "footprint": bench_footprint.run,
    "sandbox": bench_sandbox.run,
    "pool": bench_pool.run,
    "workspace": bench_workspace.run,
    "messages": bench_messaging.run,
    "audit": bench_audit.run,
}


def machine() -> str:
    """What the figures were measured on."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}, Python {platform.python_version()}, load {load}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "benchmarks", nargs="*", metavar="BENCHMARK", help=f"of {', '.join(BENCHMARKS)}; all by default"
    )
    chosen = parser.parse_args().benchmarks or list(BENCHMARKS)
    for name in chosen:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the stacks are to be ended, not left behind
    for name in chosen:
        print(f"{machine()}\n\n{BENCHMARKS[name]()}", flush=True)


if __name__ == "__main__":
    main()
