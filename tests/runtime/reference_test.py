"""Losses of taut-worker against an independent PyTorch model.

The model below is written from the definitions alone. It gets the initial weights from the step-0 checkpoint (parsed by
hand, no safetensors package) and recomputes which text every step trains on. Twenty steps of AdamW with clipping and a
cosine schedule must then give the same losses and gradient norms.
"""

import argparse
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

TOLERANCE = 1e-5  # fp32 sums in another order
MASK = (1 << 64) - 1


# ---- the data order, recomputed --------------------------------------------------------------------------------------

def mix(x):
    """SplitMix64's output function."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def permuted(position, size, seed, epoch):
    """Six-round Feistel network with cycle walking."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    keys, key = [], mix(mix(seed) ^ epoch)
    for _ in range(6):
        key = mix(key)
        keys.append(key)
    value = position
    while True:
        left, right = value >> half, value & ((1 << half) - 1)
        for key in keys:
            left, right = right, left ^ (mix(right ^ key) & ((1 << half) - 1))
        value = left << half | right
        if value < size:
            return value


def sample(documents, index, seq):
    """Byte tokens of the documents from byte offset index × seq on, 256 after each document, around the end."""
    offset, document, ids = index * seq, 0, []
    while offset >= len(documents[document]):
        offset -= len(documents[document])
        document += 1
    while len(ids) < seq + 1:
        ids += list(documents[document][offset:]) + [256]
        document, offset = (document + 1) % len(documents), 0
    return ids[: seq + 1]


def global_batch(documents, config, step):
    seq, size, seed = config["model"]["seq_length"], config["train_batch_size"], config["data"]["seed"]
    samples = sum(map(len, documents)) // seq
    rows = []
    for position in range(step * size, (step + 1) * size):
        rows.append(sample(documents, permuted(position % samples, samples, seed, position // samples), seq))
    return torch.tensor(rows)


# ---- the model, from its definition ----------------------------------------------------------------------------------

class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x):
    """x [batch, heads, seq, dim]: complex multiplication of (x[i], x[i + dim/2]) by exp(i · position · θ_i)."""
    seq, half = x.shape[2], x.shape[3] // 2
    theta = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    turn = torch.polar(torch.ones(seq, half, dtype=torch.float64),
                       torch.arange(seq, dtype=torch.float64)[:, None] * theta).to(torch.complex64)
    turned = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat([turned.real, turned.imag], -1)


class Layer(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m, h, dim = m, m["hidden_size"], m["hidden_size"] // m["num_attention_heads"]
        norm = RMSNorm if m["normalization"] == "rmsnorm" else nn.LayerNorm
        self.attention_norm, self.mlp_norm = norm(h), norm(h)
        self.attention = nn.ModuleDict({"qkv": nn.Linear(h, h + 2 * m["num_query_groups"] * dim, bias=False),
                                        "out": nn.Linear(h, h, bias=False)})
        ffn = m["ffn_hidden_size"]
        up = {"gate_up": nn.Linear(h, 2 * ffn, bias=False)} if m["activation"] == "swiglu" else {
            "up": nn.Linear(h, ffn, bias=False)}
        self.mlp = nn.ModuleDict(up | {"down": nn.Linear(ffn, h, bias=False)})

    def forward(self, x):
        m, (b, s, h) = self.m, x.shape
        heads, groups, dim = m["num_attention_heads"], m["num_query_groups"], h // m["num_attention_heads"]
        qkv = self.attention["qkv"](self.attention_norm(x))
        q, k, v = qkv.split([h, groups * dim, groups * dim], -1)
        q = q.view(b, s, heads, dim).transpose(1, 2)
        k, v = (t.view(b, s, groups, dim).transpose(1, 2) for t in (k, v))
        if m["position_embedding"] == "rope":
            q, k = rotate(q), rotate(k)
        k, v = (t.repeat_interleave(heads // groups, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(dim)
        scores = scores.masked_fill(torch.ones(s, s, dtype=torch.bool).triu(1), -torch.inf)
        x = x + self.attention["out"]((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, h))
        y = self.mlp_norm(x)
        if m["activation"] == "swiglu":
            gate, up = self.mlp["gate_up"](y).chunk(2, -1)
            return x + self.mlp["down"](F.silu(gate) * up)
        return x + self.mlp["down"](F.gelu(self.mlp["up"](y)))


class Gpt(nn.Module):
    def __init__(self, m):
        super().__init__()
        h = m["hidden_size"]
        self.embedding = nn.Embedding(m["vocab_size"], h)
        if m["position_embedding"] == "learned":
            self.position_embedding = nn.Embedding(m["seq_length"], h)
        self.layers = nn.ModuleList(Layer(m) for _ in range(m["num_layers"]))
        self.final_norm = RMSNorm(h) if m["normalization"] == "rmsnorm" else nn.LayerNorm(h)
        if not m["tie_embeddings"]:
            self.head = nn.Linear(h, m["vocab_size"], bias=False)

    def loss(self, tokens):
        x = self.embedding(tokens[:, :-1])
        if hasattr(self, "position_embedding"):
            x = x + self.position_embedding.weight
        for layer in self.layers:
            x = layer(x)
        weight = self.head.weight if hasattr(self, "head") else self.embedding.weight
        logits = self.final_norm(x) @ weight.T
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def read_safetensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        assert entry["dtype"] == "F32", entry
        tensors[name] = torch.frombuffer(bytearray(raw[begin:end]), dtype=torch.float32).reshape(entry["shape"])
    return tensors


# ---- the run -----------------------------------------------------------------------------------------------------------

def learning_rate(config, step):
    lr, p, total = config["optimizer"]["params"]["lr"], config["scheduler"]["params"], config["train_steps"]
    warm_up = p["warmup_num_steps"]
    if step < warm_up:
        return lr * step / warm_up
    floor = p["cos_min_ratio"]
    return lr * (floor + (1 - floor) * (1 + math.cos(math.pi * (step - warm_up) / (total - warm_up))) / 2)


def train_reference(config, weights, documents):
    model = Gpt(config["model"])
    model.load_state_dict(weights)  # strict: every name and shape must match
    params = config["optimizer"]["params"]
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": params["weight_decay"]},
                                   {"params": rest, "weight_decay": 0.0}],
                                  betas=params["betas"], eps=params["eps"])
    for step in range(config["train_steps"]):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        optimizer.zero_grad()
        loss = model.loss(global_batch(documents, config, step))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["gradient_clipping"])
        optimizer.step()
        yield loss.item(), norm.item()


def run_worker(worker, config_file, *arguments):
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "NVTX_INJECTION64_PATH")}
    environment["OMP_NUM_THREADS"] = "1"
    result = subprocess.run([worker, config_file, "--format", "json", *arguments], env=environment, text=True,
                            capture_output=True)
    if result.returncode != 0:
        sys.exit(f"taut-worker failed:\n{result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines()]


def compare(worker, name, model):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        corpus = folder / "corpus"
        corpus.mkdir()
        documents = [("The stage waits for its neighbour, the loader for the disk. " * 40).encode(),
                     " ".join(f"step {i} has loss {i * i % 97}," for i in range(200)).encode()]
        for i, text in enumerate(documents):
            (corpus / f"{i}.txt").write_bytes(text)
        config = {
            "model": model | {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 4, "ffn_hidden_size": 48,
                              "seq_length": 16, "vocab_size": 260},
            "data": {"path": "corpus", "num_workers": 0, "seed": 11},
            "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "train_steps": 20, "seed": 5,
            "gradient_clipping": 0.5,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8,
                                                      "weight_decay": 0.1}},
            "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 3, "cos_min_ratio": 0.1}},
        }
        config_file = folder / "config.json"
        config_file.write_text(json.dumps(config))
        lines = run_worker(worker, config_file)
        run_worker(worker, config_file, "--steps", "0", "--set", "checkpoint.dir=initial")
        weights = read_safetensors(folder / "initial" / "step-0" / "weights-tp0-pp0.safetensors")
        assert len(lines) == 20, lines
        loss_error = norm_error = 0.0
        for line, (loss, norm) in zip(lines, train_reference(config, weights, documents)):
            loss_error = max(loss_error, abs(line["loss"] / loss - 1))
            norm_error = max(norm_error, abs(line["grad_norm"] / norm - 1))
        fell = lines[0]["loss"] - lines[-1]["loss"]
        print(f"{name}: largest relative error: loss {loss_error:.1e}, gradient norm {norm_error:.1e}; "
              f"the loss fell by {fell:.2f}")
        return loss_error <= TOLERANCE and norm_error <= TOLERANCE * 10 and fell > 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", required=True)
    worker = parser.parse_args().worker
    torch.set_num_threads(1)
    modern = {"position_embedding": "rope", "normalization": "rmsnorm", "activation": "swiglu", "num_query_groups": 2,
              "tie_embeddings": True}
    classic = {"position_embedding": "learned", "normalization": "layernorm", "activation": "gelu",
               "num_query_groups": 4, "tie_embeddings": False}
    passed = [compare(worker, "rope, rmsnorm, swiglu, grouped queries, tied", modern),
              compare(worker, "learned, layernorm, gelu, untied", classic)]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
