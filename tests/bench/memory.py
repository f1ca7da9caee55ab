#!/usr/bin/env python3
"""The memory model against the allocator, over more layouts than the test has time for: every rank of each trains three
steps under the tracer; its largest peak (TAUT_MEMORY) beside what `taut train --dry-run` says.

usage: memory.py BIN_DIR [NAME…] [--bar SHARE]
"""
import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile

BASE = {
    "model": {"hidden_size": 256, "num_layers": 4, "num_attention_heads": 8, "ffn_hidden_size": 688, "seq_length": 256,
              "vocab_size": 2048},
    "data": {"mock": True, "num_workers": 0},
    "trace": {"torch_ops": False},
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "train_steps": 3,
}


def pipeline(stages, microbatches, **more):
    return {"parallel": {"pipeline_parallel_size": stages, **more}, "gradient_accumulation_steps": microbatches}


def zero(stage, **more):
    return {"world_size": 2, "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 1000, **more}}


BF16 = {"bf16": {"enabled": True}}
CASES = {
    "fp32": {},
    "bf16": BF16,
    "fp32, vocabulary 16384": {"model": {"vocab_size": 16384}},
    "bf16, vocabulary 16384": {**BF16, "model": {"vocab_size": 16384}},
    "2 groups, GELU, LayerNorm": {"model": {"num_query_groups": 2, "activation": "gelu", "normalization": "layernorm",
                                            "position_embedding": "learned"}},
    "12 layers": {"model": {"num_layers": 12, "vocab_size": 512}, "train_micro_batch_size_per_gpu": 8},
    "dropout": {"model": {"dropout": 0.1}},
    "full recomputation": {"activation_checkpointing": {"mode": "full"}},
    "selective recomputation": {"activation_checkpointing": {"mode": "selective"}},
    "tp 2": {"parallel": {"tensor_parallel_size": 2}},
    "tp 2, bf16": {**BF16, "parallel": {"tensor_parallel_size": 2}},
    "tp 2, sequence parallel": {"parallel": {"tensor_parallel_size": 2, "sequence_parallel": True}},
    "cp 2": {"parallel": {"context_parallel_size": 2}},
    "pp 2, 1f1b": pipeline(2, 4),
    "pp 2, gpipe": pipeline(2, 4, pipeline_schedule="gpipe"),
    "pp 2, interleaved": pipeline(2, 4, pipeline_schedule="interleaved_1f1b", virtual_pipeline_stages=2),
    "pp 2, zero bubble": pipeline(2, 4, pipeline_schedule="zero_bubble"),
    "pp 4, 1f1b, bf16": {**BF16, **pipeline(4, 8)},
    "pp 4, zero bubble, bf16": {**BF16, **pipeline(4, 8, pipeline_schedule="zero_bubble")},
    "dp 2, stage 0": zero(0),
    "dp 2, stage 1": zero(1),
    "dp 2, stage 2": zero(2),
    "dp 2, stage 3": zero(3),
    "dp 2, stage 3, bf16": {**BF16, **zero(3)},
    "dp 2, stage 1, offload": zero(1, offload_optimizer={"device": "cpu"}),
}


def merge(base, patch):
    merged = dict(base)
    for key, value in patch.items():
        merged[key] = merge(merged.get(key, {}), value) if isinstance(value, dict) else value
    return merged


def compare(bin_dir, name, patch):
    taut = os.path.join(bin_dir, "taut")
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        config, trace = os.path.join(folder, "config.json"), os.path.join(folder, "run.db")
        with open(config, "w") as file:
            json.dump(merge(BASE, patch), file)
        run = subprocess.run([taut, "-q", "train", config, "--trace", trace], capture_output=True, text=True, timeout=300,
                             env=dict(os.environ, OMP_NUM_THREADS="1"))
        if run.returncode != 0:
            print(f"{name}: {run.stderr.strip()}", flush=True)
            return float("inf")
        dry = subprocess.run([taut, "-q", "train", config, "--dry-run", "--format", "json"], capture_output=True,
                             text=True, check=True)
        stages = json.loads(dry.stdout)["stages"]
        with sqlite3.connect(trace) as db:
            peaks = db.execute("SELECT r.rank, r.pp, max(m.allocated) FROM TAUT_MEMORY m JOIN TAUT_RANK r USING "
                               "(globalPid) WHERE m.allocated > 0 GROUP BY r.rank").fetchall()
        for rank, stage, peak in peaks:
            memory = stages[stage]["memory_bytes"]
            model = memory["total"] + memory["host"]  # no GPU: the host's memory is the device's
            worst = max(worst, abs(model / peak - 1))
            print(f"| {name} | {rank} | {peak / 1e6:.1f} | {model / 1e6:.1f} | {100 * (model / peak - 1):+.1f} % |",
                  flush=True)
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--bar", type=float, default=0.10)
    args = parser.parse_args()
    print("| layout | rank | allocator, MB | model, MB | model over allocator |\n|---|---|---|---|---|")
    worst = max(compare(args.bin_dir, name, CASES[name]) for name in args.names or CASES)
    print(f"largest difference {100 * worst:.1f} %, bar {100 * args.bar:.0f} %")
    sys.exit(0 if worst <= args.bar else 1)


if __name__ == "__main__":
    main()
