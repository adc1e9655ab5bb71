#!/usr/bin/env python3
"""Tests of the edge runtime against real nginx: run.py [GROUP …] [--keep] [--id H001,…]

Groups: table, httpcache, strict, swap, hostile, ssrf (all by default); bench prints ratios and judges nothing;
memory measures workers with many domains (MEMORY_DOMAINS).
Exit code 0 where every claim and every `must` row of cases/http_cache.tsv held.
"""
import argparse
import importlib
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from world import Report, World  # noqa: E402

GROUPS = ["table", "httpcache", "strict", "swap", "hostile", "ssrf"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groups", nargs="*", default=[])
    parser.add_argument("--keep", action="store_true", help="keep the directory of the cells")
    parser.add_argument("--id", default="", help="only these rows of http_cache.tsv")
    args = parser.parse_args()
    report, world = Report(), World()
    try:
        cell = None
        for name in args.groups or GROUPS:
            started = time.time()
            print(f"== {name}", flush=True)
            group = importlib.import_module(name)
            if name in ("table", "httpcache", "strict"):
                if cell is None:
                    cell = world.cell("main")
                    cell.put_base(world.domains(cell))
                    cell.start()
                group.run(world, cell, report, **({"only": set(args.id.split(","))} if args.id and name == "httpcache" else {}))
            else:
                group.run(world, report)
            print(f"== {name}: {time.time() - started:.1f} s", flush=True)
        for c in world.cells:
            bad = [line for line in c.log().splitlines() if "runtime error" in line or "[alert]" in line and "exited on signal 9" not in line or "[emerg]" in line]
            report.check(f"no fault in the log of {os.path.basename(c.folder)}", not bad, bad[:5])
    finally:
        if args.keep:
            print("kept: " + world.folder)
        world.close(args.keep)
    print(f"{report.passed} passed, {len(report.failed)} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
