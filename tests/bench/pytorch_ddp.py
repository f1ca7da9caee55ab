#!/usr/bin/env python3
"""Tokens per second of this runtime over PyTorch DistributedDataParallel in Python: the same model (RoPE, RMSNorm, SwiGLU,
tied embedding), batch, precision, threads (cores / ranks) and optimizer, PyTorch by its own fast ways: fused rms_norm,
scaled_dot_product_attention, autocast with bf16, fused AdamW, gradients as bucket views. PyTorch's tokens lie ready in
memory, ours come from text through the loader; both average and clip gradients over all ranks every step.

Both sides are timed alike, from outside: a step ends when its line arrives. A round runs both, one after the other, in
turning order; a side's step time is the median over a round's steps after warm-up, a cell's ratio the median over rounds.

MFU on one rank: model FLOP/s (6 a token and matrix parameter, causal attention at half) over the best of ten matrix
products of side 2048 in the same precision, measured in PyTorch in every round; medians over rounds.

usage: pytorch_ddp.py BIN_DIR [--rounds N] [--steps N] [--only REGEX]         (Python of the environment that has torch)
"""
import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# hidden size, layers, feed-forward size; with a vocabulary of 512: 5.2 and 30.9 million parameters
MODELS = {"5 M": (256, 6, 768), "30 M": (512, 9, 1536)}
HEADS, SEQUENCE, VOCABULARY, MICRO_BATCH = 8, 256, 512, 4
WARM_UP_STEPS = 3
MFU_CELL = "30 M, fp32, 1 rank"


# ---- PyTorch's side: one rank ---------------------------------------------------------------------------------------

def train_pytorch(size, precision, steps):
    import torch
    import torch.nn.functional as F
    from torch import nn

    hidden, layers, ffn = MODELS[size]
    dim = hidden // HEADS

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
            self.gate_up, self.down = nn.Linear(hidden, 2 * ffn, bias=False), nn.Linear(ffn, hidden, bias=False)

        def forward(self, x, cos, sin):
            batch = x.shape[0]
            q, k, v = self.qkv(self.attention_norm(x)).view(batch, SEQUENCE, 3, HEADS, dim).permute(2, 0, 3, 1, 4)

            def rotate(t):
                first, second = t.chunk(2, -1)
                return t * cos + torch.cat((-second, first), -1) * sin

            context = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
            x = x + self.out(context.transpose(1, 2).reshape(batch, SEQUENCE, hidden))
            gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, hidden)
            nn.init.normal_(self.embedding.weight, std=0.02)
            self.layers, self.norm = nn.ModuleList(Layer() for _ in range(layers)), nn.RMSNorm(hidden, eps=1e-5)
            angle = torch.outer(torch.arange(SEQUENCE), 10000.0 ** (-torch.arange(dim // 2) / (dim // 2)))
            kind = torch.bfloat16 if precision == "bf16" else torch.float32
            self.register_buffer("cos", angle.cos().repeat(1, 2).to(kind), persistent=False)
            self.register_buffer("sin", angle.sin().repeat(1, 2).to(kind), persistent=False)

        def forward(self, tokens):
            x = self.embedding(tokens[:, :-1])
            for layer in self.layers:
                x = layer(x, self.cos, self.sin)
            logits = F.linear(self.norm(x), self.embedding.weight)
            return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    world = int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(max(1, os.cpu_count() // world))
    torch.manual_seed(0)
    model = bare = Gpt()
    if world > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(bare, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    batches = torch.randint(VOCABULARY, (16, MICRO_BATCH, SEQUENCE + 1))
    say = print if os.environ["RANK"] == "0" else lambda *a, **k: None
    for step in range(steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = model(batches[step % len(batches)])
        loss.backward()
        nn.utils.clip_grad_norm_(bare.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        say(json.dumps({"step": step, "loss": loss.item()}), flush=True)
    if world > 1:
        torch.distributed.destroy_process_group()


def print_matmul_peak(precision):
    """FLOP/s."""
    import torch
    torch.set_num_threads(os.cpu_count())
    side, best = 2048, float("inf")
    a, b = (torch.randn(side, side).to(torch.bfloat16 if precision == "bf16" else torch.float32) for _ in "ab")
    for _ in range(11):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    print(2 * side ** 3 / best)


# ---- both sides, from outside ---------------------------------------------------------------------------------------

def step_seconds(processes):
    """Median time between the lines of rank 0 after warm-up."""
    ends = [time.monotonic() for line in processes[0].stdout if '"loss"' in line]
    if any(process.wait() != 0 for process in processes):
        sys.exit("a run failed, see above")
    return statistics.median(b - a for a, b in zip(ends[WARM_UP_STEPS - 1:], ends[WARM_UP_STEPS:]))


def pytorch(size, precision, ranks, steps):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"} | {
        "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return step_seconds([
        subprocess.Popen([sys.executable, __file__, "--rank-of", size, precision, "--steps", str(steps)], text=True,
                         stdout=subprocess.PIPE, env=environment | {"RANK": str(rank)}) for rank in range(ranks)])


def taut(bin_dir, folder, size, precision, ranks, steps):
    hidden, layers, ffn = MODELS[size]
    config = {
        "model": {"hidden_size": hidden, "num_layers": layers, "num_attention_heads": HEADS, "ffn_hidden_size": ffn,
                  "seq_length": SEQUENCE, "vocab_size": VOCABULARY},
        "data": {"path": os.path.join(folder, "text"), "tokenizer": "byte", "num_workers": 1},
        "train_micro_batch_size_per_gpu": MICRO_BATCH, "gradient_accumulation_steps": 1, "world_size": ranks,
        "train_steps": steps, "gradient_clipping": 1.0, "bf16": {"enabled": precision == "bf16"},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}}}
    path = os.path.join(folder, "config.json")
    with open(path, "w") as file:
        json.dump(config, file)
    command = [os.path.join(bin_dir, "taut"), "train", path, "--format", "json"]
    return step_seconds([subprocess.Popen(command, stdout=subprocess.PIPE, text=True)])


def matmul_peak(precision):
    child = subprocess.run([sys.executable, __file__, "--peak-of", precision], stdout=subprocess.PIPE, text=True, check=True)
    return float(child.stdout)


def flops_per_step(size):
    hidden, layers, ffn = MODELS[size]
    matrices = layers * (4 * hidden ** 2 + 3 * hidden * ffn) + VOCABULARY * hidden
    return MICRO_BATCH * SEQUENCE * 6 * (matrices + layers * hidden * SEQUENCE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="a run; default: about 6 seconds of them")
    parser.add_argument("--only", default="", metavar="REGEX", help='of cells, such as "30 M, fp32, 1 rank"')
    parser.add_argument("--bar", type=float, default=0.98, help="least ratio of a cell; the mean's is 1")
    parser.add_argument("--mfu-bar", type=float, default=0.80)
    parser.add_argument("--rank-of", nargs=2, metavar=("MODEL", "PRECISION"), help=argparse.SUPPRESS)
    parser.add_argument("--peak-of", metavar="PRECISION", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_of:
        return train_pytorch(*args.rank_of, args.steps)
    if args.peak_of:
        return print_matmul_peak(args.peak_of)
    ratios, utilizations = {}, {}
    print("| parameters, precision, ranks | PyTorch (ms/step) | Taut (ms/step) | tokens/s, Taut over PyTorch | rounds "
          "| MFU, PyTorch | MFU, Taut |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "text"))
        with open(os.path.join(folder, "text", "corpus.txt"), "w") as file:
            file.write("The stage waits for its neighbour, the loader for the disk.\n" * 20000)
        for size in MODELS:
            for precision in ("fp32", "bf16"):
                for ranks in (1, 2):
                    cell = f"{size}, {precision}, {ranks} rank{'s' if ranks > 1 else ''}"
                    if not re.search(args.only, cell):
                        continue
                    steps = args.steps or {"5 M": 40, "30 M": 15}[size]
                    sides = {"PyTorch": lambda: pytorch(size, precision, ranks, steps),
                             "Taut": lambda: taut(args.bin_dir, folder, size, precision, ranks, steps)}
                    seconds, peaks = {side: [] for side in sides}, []
                    for number in range(args.rounds):
                        for side in list(sides)[::1 if number % 2 == 0 else -1]:
                            seconds[side].append(sides[side]())
                        if ranks == 1:
                            peaks.append(matmul_peak(precision))
                    each = [p / t for p, t in zip(seconds["PyTorch"], seconds["Taut"])]
                    ratios[cell] = statistics.median(each)
                    print(f"| {cell} | " + " | ".join(f"{statistics.median(of) * 1e3:.1f}" for of in seconds.values())
                          + f" | {ratios[cell]:.3f} | " + ", ".join(f"{ratio:.3f}" for ratio in each), end=" | ")
                    used = [statistics.median(flops_per_step(size) / s / peak for s, peak in zip(of, peaks))
                            for of in seconds.values()] if peaks else []
                    print(" | ".join(f"{share:.2f}" for share in used) or "|", "|", flush=True)
                    if used:
                        utilizations[cell] = used[1]
    mean = statistics.mean(ratios.values())
    mfu = utilizations.get(MFU_CELL, 1.0)
    print(f"\nmean {mean:.3f} (bar 1.0), least {min(ratios.values()):.3f} (bar {args.bar}); "
          f"MFU of {MFU_CELL}: {mfu:.2f} (bar {args.mfu_bar})")
    if min(ratios.values()) < args.bar or mean < 1.0 or mfu < args.mfu_bar:
        sys.exit(1)


if __name__ == "__main__":
    main()
