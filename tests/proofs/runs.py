"""What the proofs share: a tiny model and text, one run of `taut train`, and its checkpoint as whole tensors by name."""
import array
import copy
import json
import math
import os
import random
import re
import struct
import subprocess
import time
from dataclasses import dataclass, field

# 8 layers go into 2 or 4 stages of 1 or 2 chunks, 8 heads and 4 groups into 2 or 4 tensor-parallel ranks.
BASE = {
    "model": {"hidden_size": 64, "num_layers": 8, "num_attention_heads": 8, "num_query_groups": 4, "ffn_hidden_size": 128,
              "seq_length": 32, "vocab_size": 264},
    "data": {"tokenizer": "byte", "num_workers": 0},
    "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "world_size": 1, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}},
}
EXPERTS = {"model": {"num_experts": 4, "moe_router_topk": 2}}


@dataclass
class Run:
    error: str = ""  # what taut said; empty = it ran
    seconds: float = 0.0
    losses: list = field(default_factory=list)
    checkpoint: str = ""


def merged(config, *patches):
    """JSON merge patch (RFC 7396) of `patches`, one after another."""
    config = copy.deepcopy(config)
    for patch in patches:
        for key, value in patch.items():
            both = isinstance(value, dict) and isinstance(config.get(key), dict)
            config[key] = merged(config[key], value) if both else copy.deepcopy(value)
    return config


def parallel(tp=1, pp=1, cp=1, ep=1, schedule=None, chunks=None, **more):
    """The section `parallel`; interleaved_1f1b has two chunks a stage."""
    more.update(tensor_parallel_size=tp, pipeline_parallel_size=pp, context_parallel_size=cp, expert_parallel_size=ep)
    if schedule:
        more["pipeline_schedule"] = schedule
    if chunks or schedule == "interleaved_1f1b":
        more["virtual_pipeline_stages"] = chunks or 2
    return {"parallel": more}


def zero(stage):
    """Small buckets, and a threshold that divides all but norms: the path of a large model."""
    return {"zero_optimization": {"stage": stage, "reduce_bucket_size": 20000, "stage3_param_persistence_threshold": 100}}


def write_text(folder, documents=400):
    """Documents of words, one a file, in stretches of long and of very short ones: end-of-document tokens, which
    data.eod_mask_loss leaves out, are unequally spread over samples."""
    generator = random.Random(7)
    words = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=generator.randint(2, 7))) for _ in range(60)]
    os.makedirs(folder)
    for number in range(documents):
        long = generator.choice((40, 80)) if number // 8 % 2 else 1
        with open(os.path.join(folder, f"{number:04}.txt"), "w") as file:
            file.write(" ".join(generator.choices(words, k=long)))


def train(bin_dir, folder, name, config, steps):
    """Trains `config` in folder/name, with one thread a rank, and saves a checkpoint after the last step."""
    where = os.path.join(folder, re.sub(r"\W+", "-", name))
    os.makedirs(where)
    text = os.path.join(folder, "text")
    if not os.path.exists(text):
        write_text(text)
    config = merged(config, {"data": {"path": text}, "train_steps": steps, "checkpoint": {"dir": os.path.join(where, "saved")}})
    path = os.path.join(where, "config.json")
    with open(path, "w") as file:
        json.dump(config, file, indent=1)
    start = time.monotonic()
    child = subprocess.run([os.path.join(bin_dir, "taut"), "train", path, "--format", "json"], capture_output=True,
                           text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    run = Run(seconds=time.monotonic() - start, checkpoint=os.path.join(where, "saved", f"step-{steps}"))
    lines = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    run.losses = [line["loss"] for line in lines if "step_ms" in line]
    if child.returncode != 0:
        said = [line for line in child.stderr.splitlines() if "error:" in line] or child.stderr.splitlines()[-1:]
        run.error = (said or [f"exit {child.returncode}"])[0].split("error:", 1)[-1].replace(path + ":", "").strip()
    elif len(run.losses) != steps or None in run.losses:
        run.error = f"{len(run.losses)} losses of {steps} steps, or one that is no number"
    return run


def read_safetensors(path):
    """{name: (shape, values)} of a file of F32 tensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        start, tensors = file.tell(), {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            assert entry["dtype"] == "F32", f"{path}: {name} is {entry['dtype']}"
            file.seek(start + entry["data_offsets"][0])
            values = array.array("f")
            values.frombytes(file.read(entry["data_offsets"][1] - entry["data_offsets"][0]))
            tensors[name] = (tuple(entry["shape"]), values)
    return tensors


def tensor_shard(name, model):
    """(dimension, blocks) of runtime/parallel/parameter.h's Shard; None = every tensor-parallel rank has all of it."""
    hidden, ffn = model["hidden_size"], model["ffn_hidden_size"]
    group_rows = hidden // model["num_attention_heads"] * model["num_query_groups"]
    for end, shard in {"embedding.weight": (0, [model["vocab_size"]]), "head.weight": (0, [model["vocab_size"]]),
                       ".qkv.weight": (0, [hidden, group_rows, group_rows]), ".out.weight": (1, [hidden]),
                       ".gate_up.weight": (0, [ffn, ffn]), ".up.weight": (0, [ffn]), ".down.weight": (1, [ffn])}.items():
        if name.endswith(end) and name != "position_embedding.weight":
            return shard
    return None


def assemble(pieces, shard):
    """The whole matrix from the (shape, values) of tensor-parallel ranks 0, 1, …: of each block, each rank's part."""
    dim, blocks = shard
    ranks, whole = len(pieces), array.array("f")
    if dim == 1:
        (rows, columns), values = pieces[0][0], [piece[1] for piece in pieces]
        for row in range(rows):
            for part in values:
                whole.extend(part[row * columns:(row + 1) * columns])
        return whole
    columns, first = pieces[0][0][1], 0
    for block in blocks:
        for _, part in pieces:
            whole.extend(part[first * columns:(first + block // ranks) * columns])
        first += block // ranks
    return whole


def read_checkpoint(folder, what="weights"):
    """{name: [whole tensor, …]} of one checkpoint: several copies where ranks that save hold the same parameter (norms
    under tensor parallelism, a tied embedding on the first and the last stage). `what` = "weights" or "optimizer"."""
    with open(os.path.join(folder, "meta.json")) as file:
        model = json.load(file)["model"]
    shards = {}  # {(pp, ep): [tensors of tp 0, tp 1, …]}
    for file in sorted(os.listdir(folder), key=lambda file: (len(file), file)):
        found = re.fullmatch(what + r"-tp(\d+)-pp(\d+)(?:-ep(\d+))?\.safetensors", file)
        if found:
            shards.setdefault(found.groups()[1:], []).append(read_safetensors(os.path.join(folder, file)))
    whole = {}
    for ranks in shards.values():
        for name in ranks[0]:
            pieces = [rank[name] for rank in ranks]
            shard = tensor_shard(re.sub(r"\.moment[12]$", "", name), model)
            copies = [values for _, values in pieces] if shard is None else [assemble(pieces, shard)]
            whole.setdefault(name, []).extend(copies)
    return whole


def norm(values):
    return math.sqrt(math.fsum(x * x for x in values))


def relative_errors(reference, other):
    """{name: norm(x - reference) / norm(reference)}, the largest of a parameter's copies."""
    assert reference.keys() == other.keys(), f"other parameters: {sorted(reference.keys() ^ other.keys())}"
    errors = {}
    for name, copies in other.items():
        expected = reference[name][0]
        for values in copies:
            assert len(values) == len(expected), f"{name} has {len(values)} elements, not {len(expected)}"
            if values == expected:
                error = 0.0
            else:
                error = norm([x - y for x, y in zip(values, expected)]) / (norm(expected) or math.ulp(0.0))
            errors[name] = max(errors.get(name, 0.0), error)
    return errors
