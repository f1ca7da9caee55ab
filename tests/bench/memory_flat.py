#!/usr/bin/env python3
"""Memory over many steps: what grows between step 100 and the end of one traced run (dp = 2, two loaders a rank).

- tensors: the bytes of rank 0's tensors at the end of a step (`taut train --format json`; the least of a stretch of
  steps, since a ZeRO gather may be under way there or not), and the most that each rank's took within a step
  (TAUT_MEMORY);
- resident: VmRSS of each process (/proc), sampled as the steps go by: ranks, loaders, and the launcher, whose collector
  writes the trace. PSS is shown but has no bar: it moves when any program that maps LibTorch starts or ends.
Growth is the median of the last tenth of the steps over that of as many steps from step 100 on.

usage: memory_flat.py BIN_DIR [--steps N] [--bar SHARE] [--stage N] [--verbose]
"""
import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

CONFIG = {
    "model": {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 2, "ffn_hidden_size": 128, "seq_length": 64,
              "vocab_size": 264},
    "data": {"tokenizer": "byte", "num_workers": 2},
    "world_size": 2, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
}
FIRST_STEP = 100
SAMPLE_EVERY = 10  # steps
MB = 1e6


def write_text(folder):
    os.makedirs(folder)
    for number in range(64):
        with open(os.path.join(folder, f"{number:02}.txt"), "w") as file:
            file.write(" ".join(str(word * 7919 % 9973) for word in range(number * 1000, number * 1000 + 1000)))


def descendants(pid):
    """{pid: name} of a process and its children's children."""
    found, todo = {}, [pid]
    while todo:
        pid = todo.pop()
        try:
            with open(f"/proc/{pid}/comm") as file:
                found[pid] = file.read().strip()
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    todo += [int(child) for child in file.read().split()]
        except OSError:  # it ended meanwhile
            found.pop(pid, None)
    return found


def resident(pid):
    """{what: bytes} or None when the process has ended."""
    sizes = {}
    try:
        for path, wanted in ((f"/proc/{pid}/status", ("VmRSS", "RssAnon", "RssFile", "RssShmem")),
                             (f"/proc/{pid}/smaps_rollup", ("Pss",))):
            with open(path) as file:
                for line in file:
                    name, _, value = line.partition(":")
                    if name in wanted:
                        sizes[name] = 1024 * int(value.split()[0])
    except OSError:
        return None
    return sizes or None


def peaks_of(trace):
    """{rank: [(step, most bytes that its tensors took at once)]}."""
    found = {}
    with sqlite3.connect(f"file:{trace}?mode=ro", uri=True) as db:
        for rank, allocated in db.execute("SELECT r.rank, m.allocated FROM TAUT_MEMORY m JOIN TAUT_RANK r "
                                          "USING (globalPid) WHERE m.allocated > 0 ORDER BY m.time"):
            series = found.setdefault(rank, [])
            series.append((len(series), {"most in a step": allocated}))
    return found


def growth(series, typical=statistics.median):
    """{what: (typical near FIRST_STEP, typical near the end)} of [(step, {what: bytes})]."""
    last = series[-1][0]
    window = max(SAMPLE_EVERY, (last + 1) // 10)
    parts = ([values for step, values in series if FIRST_STEP <= step < FIRST_STEP + window],
             [values for step, values in series if step > last - window])
    return {what: tuple(typical([values[what] for values in part]) for part in parts) for what in series[0][1]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--stage", type=int, default=0, help="ZeRO stage")
    parser.add_argument("--bar", type=float, default=0.01, help="largest growth")
    parser.add_argument("--verbose", action="store_true", help="kinds of resident pages, too")
    args = parser.parse_args()
    if args.steps < 3 * FIRST_STEP:
        parser.error(f"--steps: at least {3 * FIRST_STEP}")
    tensors, processes, names = [], {}, {}
    with tempfile.TemporaryDirectory() as folder:
        config, trace = os.path.join(folder, "config.json"), os.path.join(folder, "run.db")
        write_text(os.path.join(folder, "text"))
        with open(config, "w") as file:
            json.dump({**CONFIG, "data": {**CONFIG["data"], "path": os.path.join(folder, "text")},
                       "zero_optimization": {"stage": args.stage}}, file)
        start = time.monotonic()
        command = [os.path.join(args.bin_dir, "taut"), "-q", "train", config, "--format", "json",
                   "--steps", str(args.steps), "--trace", trace]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        for line in child.stdout:
            step = json.loads(line) if line.startswith("{") else {}
            if "memory_allocated_bytes" not in step:
                continue
            tensors.append((step["step"], {"at the end of a step": step["memory_allocated_bytes"]}))
            if step["step"] % SAMPLE_EVERY:
                continue
            names = names or descendants(child.pid)
            for pid in names:
                sizes = resident(pid)
                if sizes:
                    processes.setdefault(pid, []).append((step["step"], sizes))
        if child.wait() != 0:
            sys.exit(f"taut train: exit {child.returncode}")
        print(f"{len(tensors)} steps in {time.monotonic() - start:.0f} s, a trace of "
              f"{os.path.getsize(trace) / MB:.0f} MB", flush=True)
        peaks = peaks_of(trace)
    worst = 0.0

    def show(title, what, first, last, counts=True):
        nonlocal worst
        share = last / first - 1
        worst = max(worst, share) if counts else worst
        print(f"| {title} | {what} | {first / MB:.3f} | {last / MB:.3f} | {share:+.2%} |", flush=True)

    print(f"| of | what | MB at step {FIRST_STEP} | MB at the end | growth |\n|---|---|---|---|---|")
    for rank, series in [(0, tensors), *peaks.items()]:
        for what, (first, last) in growth(series, min if series is tensors else statistics.median).items():
            show(f"rank {rank}'s tensors", what, first, last)
    for number, (pid, series) in enumerate(processes.items()):
        for what, (first, last) in growth(series).items():
            if what in ("VmRSS", "Pss") or args.verbose:
                show(f"{names[pid]} {number}", what, first or 1, last or 1, what == "VmRSS")
    print(f"largest growth {worst:+.2%}, bar {args.bar:.0%}")
    sys.exit(0 if worst <= args.bar else 1)


if __name__ == "__main__":
    main()
