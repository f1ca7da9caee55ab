#!/usr/bin/env python3
"""Splitting the tokens against splitting the layers, on a sparse sample: the same model and global batch with
context_parallel_size 2, with pipeline_parallel_size 2, and on one rank. Runs are interleaved; step times are `taut analyze`'s
(median over steps of the slowest rank), ratios are medians over rounds. Losses must agree.

usage: context_parallel.py BIN_DIR CONFIG [--steps N] [--rounds N] [--bar RATIO]
"""
import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile

LAYOUTS = {  # context parallel, pipeline parallel
    "cp=2": (2, 1),
    "pp=2": (1, 2),
    "1 rank": (1, 1),
}
LOSS_TOLERANCE = 1e-4


def run(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bar", type=float, default=1.1, help="least step time of pp=2 over cp=2")
    args = parser.parse_args()
    taut = os.path.join(args.bin_dir, "taut")

    def measure(layout, trace):
        cp, pp = LAYOUTS[layout]
        run(taut, "train", args.config, "--steps", args.steps, "--trace", trace, "--nproc", cp * pp,
            "--set", f"parallel.context_parallel_size={cp}", "--set", f"parallel.pipeline_parallel_size={pp}")
        report = json.loads(run(taut, "analyze", trace, "--steps", "2:", "--format", "json"))
        with sqlite3.connect(f"file:{trace}?mode=ro", uri=True) as db:
            losses = [row[0] for row in db.execute(
                "SELECT max(loss) FROM TAUT_STEP WHERE loss IS NOT NULL GROUP BY step ORDER BY step")]
        return report["summary"]["step_ms"], losses

    steps = {layout: [] for layout in LAYOUTS}
    apart = 0.0
    print("round  " + "  ".join(f"{layout + ' (ms/step)':>16s}" for layout in LAYOUTS) + "  pp/cp  1 rank/cp")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            order = list(LAYOUTS) if number % 2 == 0 else list(reversed(LAYOUTS))
            losses = {}
            for layout in order:
                step_ms, losses[layout] = measure(layout, os.path.join(folder, f"{number}-{layout[0]}.db"))
                steps[layout].append(step_ms)
            for layout in LAYOUTS:
                pairs = list(zip(losses[layout], losses["1 rank"], strict=True))
                apart = max([apart] + [abs(a - b) / abs(b) for a, b in pairs])
            last = {layout: times[-1] for layout, times in steps.items()}
            print(f"{number + 1:5d}  " + "  ".join(f"{last[layout]:16.1f}" for layout in LAYOUTS) +
                  f"  {last['pp=2'] / last['cp=2']:5.2f}  {last['1 rank'] / last['cp=2']:9.2f}", flush=True)
    over_pipeline = statistics.median(pp / cp for pp, cp in zip(steps["pp=2"], steps["cp=2"]))
    over_one = statistics.median(one / cp for one, cp in zip(steps["1 rank"], steps["cp=2"]))
    print(f"splitting tokens is {over_pipeline:.2f}x as fast as splitting layers (bar {args.bar}), {over_one:.2f}x as fast as "
          f"one rank; losses differ by at most {apart:.1e} (bar {LOSS_TOLERANCE})")
    if over_pipeline < args.bar or apart > LOSS_TOLERANCE:
        sys.exit(1)


if __name__ == "__main__":
    main()
