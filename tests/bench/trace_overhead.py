#!/usr/bin/env python3
"""What tracing costs: CPU seconds per step with tracing on over tracing off, from rusage of the launcher with its collector
and all its children (ranks, loaders). Start-up is taken out by a one-step run of the same kind. Interleaved pairs, medians.

usage: trace_overhead.py BIN_DIR CONFIG [--steps N] [--pairs N] [--bar RATIO]
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile


def cpu_seconds(command):
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--bar", type=float, default=1.03)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        def per_step(traced):
            base = [os.path.join(args.bin_dir, "taut"), "train", args.config]
            trace = ["--trace", os.path.join(folder, "run.db")] if traced else []
            short = cpu_seconds(base + ["--steps", "1"] + trace)
            full = cpu_seconds(base + ["--steps", str(args.steps + 1)] + trace)
            return (full - short) / args.steps

        ratios = []
        print("pair  off (CPU s/step)  on (CPU s/step)  on/off")
        for pair in range(args.pairs):
            order = (False, True) if pair % 2 == 0 else (True, False)
            seconds = {traced: per_step(traced) for traced in order}
            ratios.append(seconds[True] / seconds[False])
            print(f"{pair + 1:4d}  {seconds[False]:16.4f}  {seconds[True]:15.4f}  {ratios[-1]:6.4f}", flush=True)
    median = statistics.median(ratios)
    print(f"median on/off {median:.4f} (min {min(ratios):.4f}, max {max(ratios):.4f}), bar {args.bar}")
    if median > args.bar:
        sys.exit(1)


if __name__ == "__main__":
    main()
