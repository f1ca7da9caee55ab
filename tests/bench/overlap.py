#!/usr/bin/env python3
"""How much of the data-parallel communication is hidden under compute: dp = 2, ZeRO 0, 2 and 3, one thread a rank, on
an emulated link (communication.emulated_link: its waiting costs no core). Three kinds of run, interleaved: overlap on,
overlap off, and overlap on without the link.

From the trace: a transfer of gradients or parameters is in flight from its last member's issue to its end; exposed is
what of that time (the union over transfers) the trainer blocked on. hidden = 1 - exposed / in flight, over all steps
but the warm-up. Under compute a transfer takes longer, since the backend wants a core too: `hidden of off` divides by
what is in flight with overlap off, and the bar holds for both. From step times alone, as a check: hidden =
1 - (on - no link) / (off - no link), beside what the transfers' bytes / bandwidth + latency come to. Figures are the
ranks' means and medians over rounds.

usage: overlap.py BIN_DIR [--stage N]… [--steps N] [--rounds N] [--least-on SHARE] [--most-off SHARE]
"""
import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile

GBIT_PER_S, LATENCY_US = 10, 50
# 14.4 M parameters: 58 MB of gradients, 46 ms of this link a step, beside several hundred of compute.
CONFIG = {
    "model": {"hidden_size": 384, "num_layers": 8, "num_attention_heads": 6, "ffn_hidden_size": 1024, "seq_length": 128,
              "vocab_size": 512},
    "data": {"mock": True, "num_workers": 0},
    "world_size": 2, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1,
    "trace": {"torch_ops": False, "memory": False, "sample_hz": 0},
}
BUCKET_BYTES = 4 << 20
WARM_UP_STEPS = 2


def config_of(stage, overlap, link):
    zero = {"stage": stage, "overlap_comm": overlap, "reduce_bucket_size": BUCKET_BYTES // 4,
            "stage3_param_persistence_threshold": 1000}
    communication = {"overlap_grad_reduce": overlap, "bucket_size_mb": BUCKET_BYTES / (1 << 20)}
    if link:
        communication["emulated_link"] = {"gbit_per_s": GBIT_PER_S, "latency_us": LATENCY_US}
    return {**CONFIG, "zero_optimization": zero, "communication": communication}


KINDS = {"on": (True, True), "off": (False, True), "no link": (True, False)}  # overlap, link


def train(taut, folder, stage, kind, steps):
    config, trace = os.path.join(folder, "config.json"), os.path.join(folder, "run.db")
    with open(config, "w") as file:
        json.dump(config_of(stage, *KINDS[kind]), file)
    done = subprocess.run([taut, "-q", "train", config, "--steps", str(steps), "--trace", trace], capture_output=True,
                          text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        sys.exit(f"ZeRO {stage}, {kind}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return trace


def union(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        elif start < end:
            merged.append([start, end])
    return merged


def overlap_ns(left, right):
    """Of two unions."""
    total, i, j = 0, 0, 0
    while i < len(left) and j < len(right):
        total += max(0, min(left[i][1], right[j][1]) - max(left[i][0], right[j][0]))
        i, j = (i + 1, j) if left[i][1] < right[j][1] else (i, j + 1)
    return total


def clip(intervals, start, end):
    return [[max(a, start), min(b, end)] for a, b in intervals if max(a, start) < min(b, end)]


def wire_seconds(op, bytes_):
    """On a ring of two: all-reduce sends 2 (n - 1) / n of the tensor, all-gather and reduce-scatter half of that."""
    return (bytes_ if op == "all_reduce" else bytes_ / 2) * 8 / (GBIT_PER_S * 1e9) + LATENCY_US * 1e-6


def measure(trace):
    """{what: milliseconds a step}, but `step` the median over steps, means over ranks."""
    with sqlite3.connect(f"file:{trace}?mode=ro", uri=True) as db:
        steps = db.execute("SELECT rank, start, end FROM TAUT_STEP WHERE step >= ?", (WARM_UP_STEPS,)).fetchall()
        rows = db.execute(
            "SELECT c.rank, c.op, c.groupId, c.seq, c.bytes, c.waitStart, c.waitEnd, e.start, e.end "
            "FROM TAUT_COLLECTIVE c JOIN NVTX_EVENTS e ON e.rowid = c.eventId "
            "WHERE c.reason IN ('gradient', 'parameter')").fetchall()
    issued = {}
    for _, op, group, seq, *_, start, _ in rows:
        issued[group, op, seq] = max(start, issued.get((group, op, seq), start))
    found = []
    for rank in sorted({rank for rank, *_ in steps}):
        spans = [(start, end) for r, start, end in steps if r == rank]
        window = min(start for start, _ in spans), max(end for _, end in spans)
        own = [row[1:] for row in rows if row[0] == rank]
        flight = clip(union((issued[group, op, seq], end) for op, group, seq, _, _, _, _, end in own), *window)
        blocked = union((start, end) for *_, start, end, _, _ in own if end is not None)
        found.append({
            "step": statistics.median(end - start for start, end in spans) / 1e6,
            "in flight": sum(end - start for start, end in flight) / len(spans) / 1e6,
            "exposed": overlap_ns(flight, blocked) / len(spans) / 1e6,
            "wire": sum(1e3 * wire_seconds(op, bytes_) for op, _, _, bytes_, _, _, start, _ in own
                        if window[0] <= start < window[1]) / len(spans)})
    return {what: statistics.mean(rank[what] for rank in found) for what in found[0]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("--stage", type=int, action="append")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least-on", type=float, default=0.80, help="least share hidden with overlap on")
    parser.add_argument("--most-off", type=float, default=0.05, help="largest share hidden with overlap off")
    args = parser.parse_args()
    taut, missed = os.path.join(args.bin_dir, "taut"), False
    stages = args.stage or [0, 2, 3]
    runs = {(stage, kind): [] for stage in stages for kind in KINDS}
    print("round  ZeRO  overlap  step (ms)  in flight  exposed  hidden  wire", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.rounds):
            order = list(runs) if number % 2 == 0 else list(reversed(runs))
            for stage, kind in order:
                found = measure(train(taut, folder, stage, kind, args.steps))
                found["hidden"] = 1 - found["exposed"] / found["in flight"]
                runs[stage, kind].append(found)
                print(f"{number + 1:5d}  {stage:4d}  {kind:7s}  {found['step']:9.1f}  {found['in flight']:9.1f}  "
                      f"{found['exposed']:7.1f}  {found['hidden']:6.1%}  {found['wire']:4.1f}", flush=True)
    for stage in stages:
        on, off, no_link = ({what: statistics.median(run[what] for run in runs[stage, kind])
                             for what in runs[stage, kind][0]} for kind in KINDS)
        cost, left = off["step"] - no_link["step"], on["step"] - no_link["step"]
        of_off = 1 - on["exposed"] / off["in flight"]
        print(f"ZeRO {stage}: hidden {on['hidden']:.1%} with overlap on, {of_off:.1%} of off "
              f"(bar {args.least_on:.0%}), "
              f"{off['hidden']:.1%} with overlap off (bar {args.most_off:.0%}); "
              f"step {off['step']:.1f} -> {on['step']:.1f} ms, {off['step'] / on['step']:.3f}x; by step times "
              f"{1 - left / cost:.0%} of {cost:.1f} ms hidden (bytes and latency: {off['wire']:.1f} ms)", flush=True)
        missed |= min(on["hidden"], of_off) < args.least_on or off["hidden"] > args.most_off
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
