"""Every benchmark that needs no checkpoint, then the page: ``python -m benchmarks.suite``.

One command for a machine that is lent for minutes: with a GPU it takes the quick form of each, and
a part that fails leaves the results of the others.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

PARTS = {
    "train": ["--quick"],
    "attention": ["--quick"],
    "methods": ["--quick", "--rounds", "3"],
    "output_layer": ["--quick"],
    "generate": ["--quick"],
}


def main() -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    failed = []
    for name, options in PARTS.items():
        print(f"== benchmarks.{name} {' '.join(options)}", flush=True)
        began = time.time()
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False)
        print(f"== {time.time() - began:.0f} s", flush=True)
        if done.returncode != 0:
            failed.append(name)
    subprocess.run([sys.executable, "-m", "benchmarks.table"], check=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
