#!/usr/bin/env python3
"""Splitting the tokens against splitting the layers, on a sparse sample: the same model and global batch with
context_parallel_size 2, with pipeline_parallel_size 2, and on one rank, one thread a rank. Runs are interleaved; a
round's step time is the median over its steps, ratios are medians over rounds. Losses must agree. The ratio of the
fastest steps is what is left of the difference on a machine that others use, too.

usage: context_parallel.py BIN_DIR CONFIG [--steps N] [--rounds N] [--bar RATIO]
"""
import argparse
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
WARM_UP_STEPS = 2


def run(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bar", type=float, default=1.1, help="least step time of pp=2 over cp=2")
    args = parser.parse_args()
    taut = os.path.join(args.bin_dir, "taut")

    def measure(layout, trace):
        cp, pp = LAYOUTS[layout]
        run(taut, "train", args.config, "--steps", args.steps, "--trace", trace, "--nproc", cp * pp,
            "--set", f"parallel.context_parallel_size={cp}", "--set", f"parallel.pipeline_parallel_size={pp}")
        with sqlite3.connect(f"file:{trace}?mode=ro", uri=True) as db:
            rows = db.execute(
                "SELECT max(end - start), max(loss) FROM TAUT_STEP GROUP BY step ORDER BY step").fetchall()
        return [ns / 1e6 for ns, _ in rows[WARM_UP_STEPS:]], [loss for _, loss in rows]

    steps = {layout: [] for layout in LAYOUTS}
    fastest, apart = {}, 0.0
    print("round    " + "  ".join(f"{layout + ' (ms/step)':>16s}" for layout in LAYOUTS) + "  pp/cp  1 rank/cp")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            order = list(LAYOUTS) if number % 2 == 0 else list(reversed(LAYOUTS))
            losses = {}
            for layout in order:
                step_ms, losses[layout] = measure(layout, os.path.join(folder, f"{number}-{layout[0]}.db"))
                steps[layout].append(statistics.median(step_ms))
                fastest[layout] = min([fastest.get(layout, step_ms[0])] + step_ms)
            for layout in LAYOUTS:
                pairs = list(zip(losses[layout], losses["1 rank"], strict=True))
                apart = max([apart] + [abs(a - b) / abs(b) for a, b in pairs])
            last = {layout: times[-1] for layout, times in steps.items()}
            print(f"{number + 1:7d}  " + "  ".join(f"{last[layout]:16.1f}" for layout in LAYOUTS) +
                  f"  {last['pp=2'] / last['cp=2']:5.2f}  {last['1 rank'] / last['cp=2']:9.2f}", flush=True)
    over_pipeline = statistics.median(pp / cp for pp, cp in zip(steps["pp=2"], steps["cp=2"]))
    over_one = statistics.median(one / cp for one, cp in zip(steps["1 rank"], steps["cp=2"]))
    print("fastest  " + "  ".join(f"{fastest[layout]:16.1f}" for layout in LAYOUTS) +
          f"  {fastest['pp=2'] / fastest['cp=2']:5.2f}  {fastest['1 rank'] / fastest['cp=2']:9.2f}")
    print(f"splitting tokens is {over_pipeline:.2f}x as fast as splitting layers (bar {args.bar}), "
          f"{over_one:.2f}x as fast as one rank; losses differ by at most {apart:.1e} (bar {LOSS_TOLERANCE})")
    if over_pipeline < args.bar or apart > LOSS_TOLERANCE:
        sys.exit(1)


if __name__ == "__main__":
    main()
