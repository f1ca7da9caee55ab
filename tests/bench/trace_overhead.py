#!/usr/bin/env python3
"""What tracing costs: CPU seconds per step with tracing on over tracing off, from rusage of the launcher with its collector
and all its children (ranks, loaders). Start-up is taken out by one-step runs of the same kind. Rounds are interleaved; each
kind of run counts by its median over the rounds, since one run differs from the next by several per cent. The interval is
where 95 % of resampled rounds lie (bootstrap). With --split also without LibTorch's operators and without memory samples.

usage: trace_overhead.py BIN_DIR CONFIG [--steps N] [--rounds N] [--bar RATIO] [--split]
"""
import argparse
import os
import random
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


def ratio_of(rounds, kind):
    """On over off, of per-step medians. A round is {(kind, steps): CPU seconds}."""
    def per_step(of):
        long = max(steps for _, steps in rounds[0])
        medians = {steps: statistics.median(r[of, steps] for r in rounds) for steps in (1, long)}
        return (medians[long] - medians[1]) / (long - 1)
    return per_step(kind) / per_step("off")


def interval(rounds, kind, samples=2000):
    generator = random.Random(1)
    ratios = sorted(ratio_of(generator.choices(rounds, k=len(rounds)), kind) for _ in range(samples))
    return ratios[samples // 40], ratios[-samples // 40]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--bar", type=float, default=1.03)
    parser.add_argument("--split", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = ["--trace", os.path.join(folder, "run.db")]
        kinds = {"off": [], "on": trace}
        if args.split:
            kinds["on, no torch_ops"] = trace + ["--set", "trace.torch_ops=false"]
            kinds["on, no memory"] = trace + ["--set", "trace.memory=false"]
        base = [os.path.join(args.bin_dir, "taut"), "train", args.config]
        rounds = []
        for number in range(args.rounds):
            runs = [(kind, steps) for kind in kinds for steps in (args.steps + 1, 1)]
            runs = runs[number % len(runs):] + runs[:number % len(runs)]
            rounds.append({(kind, steps): cpu_seconds(base + ["--steps", str(steps)] + kinds[kind])
                           for kind, steps in runs})
            print(f"round {number + 1}: CPU s of {args.steps + 1} steps: "
                  + ", ".join(f"{kind} {rounds[-1][kind, args.steps + 1]:.2f}" for kind in kinds), flush=True)
    for kind in list(kinds)[1:]:
        low, high = interval(rounds, kind)
        print(f"{kind:18} over off: {ratio_of(rounds, kind):.4f} (95 % {low:.4f} to {high:.4f})")
    print(f"bar {args.bar}")
    if ratio_of(rounds, "on") > args.bar:
        sys.exit(1)


if __name__ == "__main__":
    main()
