#!/usr/bin/env python3
"""Trains a tiny model in every layout on the GPUs of this machine and compares the losses with one rank on the CPU.

A layout of more ranks than GPUs shares them (communication is then staged through the host). Without a GPU, or with
CUDA_VISIBLE_DEVICES set to nothing, the layouts run on the CPU: that tests this script and the layouts, not the GPU.
Prints one PASS or FAIL line a layout, with the largest relative difference of a step's loss.

usage: layouts.py BIN_DIR [--layout NAME]...
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MODEL = {"hidden_size": 64, "num_layers": 4, "num_attention_heads": 4, "num_query_groups": 2, "ffn_hidden_size": 128,
         "seq_length": 64, "vocab_size": 288}
EXPERTS = {**MODEL, "num_experts": 4}
CONFIG = {"data": {"path": "corpus.txt", "num_workers": 1}, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
          "train_steps": 10, "seed": 3, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
          "communication": {"timeout_s": 60}}
# Against one fp32 rank on the CPU. A loss in fp32 differs by the order of its sums alone, 1e-7 between layouts on the
# CPU; in bf16 it differs by 7e-4 there. So FP32 also tells whether a product was rounded to fewer digits on its way.
FP32, BF16 = 1e-4, 5e-3
# name: ranks, model, what else the configuration has, tolerance
LAYOUTS = {
    "one rank": (1, MODEL, {}, FP32),
    "one rank bf16": (1, MODEL, {"bf16": {"enabled": True}}, BF16),
    "dp2": (2, MODEL, {}, FP32),
    "dp2 zero3": (2, MODEL, {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 100}}, FP32),
    "tp2 sequence": (2, MODEL, {"parallel": {"tensor_parallel_size": 2, "sequence_parallel": True}}, FP32),
    "pp2 1f1b": (2, MODEL, {"parallel": {"pipeline_parallel_size": 2}}, FP32),
    "cp2": (2, MODEL, {"parallel": {"context_parallel_size": 2}}, FP32),
    "ep2": (2, EXPERTS, {"parallel": {"expert_parallel_size": 2}}, FP32),
    "tp2 pp2": (4, MODEL, {"parallel": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}}, FP32),
}


def gpus():
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return 0
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        return 0
    return len(re.findall(r"^GPU", listed, re.MULTILINE))


class Failed(Exception):
    pass


class Trainings:
    def __init__(self, bin_dir, folder):
        self.taut, self.folder = pathlib.Path(bin_dir, "taut"), folder
        self.references = {}
        (folder / "corpus.txt").write_text("The quick brown fox jumps over the lazy dog. " * 500)

    def run(self, command, environment):
        done = subprocess.run([self.taut, *command], capture_output=True, text=True, timeout=120,
                              env={**os.environ, **environment})
        if done.returncode != 0:
            raise Failed(f"exit code {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
        return done

    def train(self, ranks, model, changes, environment):
        """Losses of the steps, devices of the ranks (-1: CPU), what was noted on stderr."""
        config, trace = self.folder / "config.json", self.folder / "run.db"
        config.write_text(json.dumps({"model": model, "world_size": ranks, **CONFIG, **changes}))
        done = self.run(["train", config, "--trace", trace, "--format", "json"], environment)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        rows = self.run(["query", trace, "SELECT device FROM TAUT_RANK", "--format", "json"], {})
        devices = [row[0] for row in json.loads(rows.stdout)["rows"]]
        return [line["loss"] for line in lines if "loss" in line], devices, done.stderr

    def reference(self, model):
        """Losses of one fp32 rank on the CPU."""
        key = json.dumps(model)
        if key not in self.references:
            self.references[key] = self.train(1, model, {}, {"CUDA_VISIBLE_DEVICES": ""})[0]
        return self.references[key]

    def check(self, name, count):
        """What holds for a layout on `count` GPUs; raises Failed otherwise."""
        ranks, model, changes, tolerance = LAYOUTS[name]
        expected = self.reference(model)
        # LibTorch leaves TF32 (10 bits of mantissa) off unless told otherwise; this keeps everybody from telling it.
        losses, devices, said = self.train(ranks, model, changes, {"NVIDIA_TF32_OVERRIDE": "0"})
        wanted = [rank % count if count else -1 for rank in range(ranks)]
        if sorted(devices) != sorted(wanted):
            raise Failed(f"ranks were on devices {devices}, expected {wanted}")
        shares = re.search(r"\d+ ranks share \d+ GPUs?", said)
        if bool(shares) != (0 < count < ranks):
            raise Failed(f"{ranks} ranks on {count} GPUs, and the run says of sharing: {shares and shares[0]}")
        if len(losses) != len(expected):
            raise Failed(f"{len(losses)} steps, expected {len(expected)}")
        differences = [abs(a - b) / b if a is not None else float("inf") for a, b in zip(losses, expected)]
        if not max(differences) <= tolerance:
            raise Failed(f"losses {losses}\ninstead of {expected}\nlargest relative difference {max(differences):.1e}")
        how = "CPU" if not count else shares[0] if shares else "GPU, NCCL" if ranks > 1 else "GPU"
        return f"{how}, largest relative difference {max(differences):.1e} of {tolerance:.0e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--layout", action="append", choices=LAYOUTS)
    args = parser.parse_args()
    count, failed = gpus(), False
    if not count:
        print("no GPU: every layout runs on the CPU and is compared with one rank on the CPU")
    with tempfile.TemporaryDirectory() as folder:
        trainings = Trainings(args.bin_dir, pathlib.Path(folder))
        for name in args.layout or LAYOUTS:
            try:
                print(f"PASS {name}: {trainings.check(name, count)}", flush=True)
            except (Failed, subprocess.TimeoutExpired) as failure:
                print(f"FAIL {name}: {failure}", flush=True)
                failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
