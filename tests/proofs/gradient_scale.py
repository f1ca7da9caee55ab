#!/usr/bin/env python3
"""The gradient of every parameter has the right scale on every layout, where ranks and microbatches have unequal numbers of
tokens that count (data.eod_mask_loss). One optimizer step without clipping; the checkpoint's first moment over 1 - beta1
is the gradient that AdamW got. Per kind of parameter the largest norm(g - g_ref) / norm(g_ref) against one rank, in units
of the bound 4 * 1.03^layers * eps (eps of fp32; Megatron's form for a correct parallel gradient): 1 or less holds.

Controls, on one rank's own gradients: scaled by 2, by 1 + 1e-5, or exchanged between layers, they must miss the bound.

Rows with experts: the load-balancing loss is a mean over a microbatch times the choices in it, so that another cut into
microbatches is another loss; it is off except in the rows that say so, which keep the one rank's microbatches. The
z-loss is a mean over tokens and the same on every cut of equal size: on.

usage: gradient_scale.py BIN_DIR [--only REGEX]
"""
import argparse
import re
import sys
import tempfile
import time

from runs import BASE, EXPERTS, merged, parallel, read_checkpoint, relative_errors, train, zero

BETA1, EPSILON = 0.9, 2.0 ** -23
LAYERS = BASE["model"]["num_layers"]
BOUND = 4 * 1.03 ** LAYERS * EPSILON
KINDS = {"matrix": r"(qkv|out|mlp\.gate_up|mlp\.down)\.weight$", "norm": r"norm\.weight$", "tied embedding": r"^embedding\.",
         "router": r"router\.weight$", "expert": r"\.experts\."}
ONE_STEP = {"data": {"eod_mask_loss": True}, "gradient_clipping": 0.0}
Z_LOSS = {"model": {"moe_aux_loss_coeff": 0.0, "moe_z_loss_coeff": 0.01}}
BALANCING = {"model": {"moe_aux_loss_coeff": 0.05, "moe_z_loss_coeff": 0.01}}


def layouts():
    """(name, ranks, model, changes). Global batch 8, so that a micro batch of 8 / dp is one microbatch, of 1 is 8 / dp."""
    def micro_batch(samples):
        return {"train_micro_batch_size_per_gpu": samples}
    dense, experts, balanced = "dense", "experts", "experts, balancing loss"
    yield "1 microbatch", 1, dense, (micro_batch(8),)
    for dp in (2, 8):
        yield f"dp {dp}, 1 microbatch, zero 0", dp, dense, (micro_batch(8 // dp),)
    for stage in range(4):
        yield f"dp 2, 4 microbatches, zero {stage}", 2, dense, (zero(stage),)
    yield "tp 2, 8 microbatches", 2, dense, (parallel(2),)
    yield "tp 4, sequence parallel, 1 microbatch", 4, dense, (parallel(4, sequence_parallel=True), micro_batch(8))
    yield "cp 2, 1 microbatch", 2, dense, (parallel(cp=2), micro_batch(8))
    yield "cp 4, 8 microbatches, zero 3", 4, dense, (parallel(cp=4), zero(3))
    for schedule in ("gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"):
        yield f"pp 2, 8 microbatches, {schedule}", 2, dense, (parallel(pp=2, schedule=schedule),)
    yield "pp 4, 1 microbatch, zero_bubble", 4, dense, (parallel(pp=4, schedule="zero_bubble"), micro_batch(8))
    yield "pp 2 × cp 2 × dp 2, 4 microbatches, zero 2", 8, dense, (parallel(pp=2, cp=2), zero(2))
    yield "tp 2 × pp 2 × dp 2, 1 microbatch, zero 1", 8, dense, (parallel(2, 2), micro_batch(4), zero(1))
    yield ("tp 2 × pp 2 × dp 2, 4 microbatches, interleaved_1f1b, sequence parallel, zero 3", 8, dense,
           (parallel(2, 2, schedule="interleaved_1f1b", sequence_parallel=True), zero(3)))
    yield "tp 2 × cp 2 × dp 2, 4 microbatches, sequence parallel", 8, dense, (parallel(2, cp=2, sequence_parallel=True),)
    yield "experts, 1 microbatch", 1, experts, (micro_batch(8),)
    yield "experts, dp 2, 1 microbatch", 2, experts, (micro_batch(4),)
    for stage in (0, 1, 2, 3):
        yield f"experts, ep 2, 4 microbatches, zero {stage}", 2, experts, (parallel(ep=2), zero(stage))
    yield "experts, ep 2, 1 microbatch", 2, experts, (parallel(ep=2), micro_batch(4))
    yield "experts, ep 2 = cp 2, 8 microbatches", 2, experts, (parallel(cp=2, ep=2),)
    yield "experts, ep 2 × edp 2, 1 microbatch, zero 2", 4, experts, (parallel(ep=2), micro_batch(2), zero(2))
    yield ("experts, pp 2 × cp 2 × ep 4, 4 microbatches, zero 1", 8, experts, (parallel(pp=2, cp=2, ep=4), zero(1)))
    yield ("experts, tp 2 × pp 2 × ep 2, 4 microbatches, zero_bubble, sequence parallel", 8, experts,
           (parallel(2, 2, ep=2, schedule="zero_bubble", sequence_parallel=True),))
    yield "experts, balancing loss, ep 2", 2, balanced, (parallel(ep=2),)
    yield "experts, balancing loss, ep 2 = cp 2, zero 3", 2, balanced, (parallel(cp=2, ep=2), zero(3))
    yield ("experts, balancing loss, tp 2 × pp 2 × ep 2, sequence parallel", 8, balanced,
           (parallel(2, 2, ep=2, sequence_parallel=True),))


def kind_of(name):
    found = [kind for kind, pattern in KINDS.items() if re.search(pattern, name)]
    assert len(found) == 1, f"{name} is of kinds {found}"
    return found[0]


def worst_by_kind(errors):
    """{kind: (largest error in units of the bound, parameter)}"""
    worst = {}
    for name, error in errors.items():
        worst[kind_of(name)] = max(worst.get(kind_of(name), (0.0, "")), (error / BOUND, name))
    return worst


class Proof:
    def __init__(self, bin_dir, folder):
        self.bin_dir, self.folder, self.failed, self.references = bin_dir, folder, [], {}

    def gradients(self, name, *changes):
        """{parameter: [gradient, …]} after one step, or what taut said instead."""
        run = train(self.bin_dir, self.folder, name, merged(BASE, ONE_STEP, *changes), 1)
        if run.error:
            return run.error
        moments = read_checkpoint(run.checkpoint, "optimizer")
        return {name.removesuffix(".moment1"): [[m / (1 - BETA1) for m in values] for values in copies]
                for name, copies in moments.items() if name.endswith(".moment1")}

    def reference(self, model):
        """One rank's, in 8 microbatches of one sample."""
        if model not in self.references:
            changes = {"dense": (), "experts": (EXPERTS, Z_LOSS), "experts, balancing loss": (EXPERTS, BALANCING)}[model]
            gradients = self.gradients("one rank, " + model, *changes)
            if isinstance(gradients, str):
                sys.exit(f"one rank, {model}: {gradients}")
            self.references[model] = gradients, changes
        return self.references[model]

    def row(self, name, worst):
        return f"| {name} | " + " | ".join(f"{worst[kind][0]:.3g}" if kind in worst else "" for kind in KINDS) + " |"

    def judge(self, name, ranks, model, changes):
        reference, of_model = self.reference(model)
        gradients = self.gradients(name, *of_model, *changes, {"world_size": ranks})
        if isinstance(gradients, str):
            self.failed.append(f"{name}: {gradients}")
            return f"| {name} | FAILED: {gradients} | | | | |"
        worst = worst_by_kind(relative_errors(reference, gradients))
        for kind, (error, parameter) in worst.items():
            if not error <= 1:
                self.failed.append(f"{name}: {kind} {error:.3g} × the bound, at {parameter}")
        return self.row(f"{name} ({ranks})", worst)

    def controls(self):
        """Wrong gradients must miss the bound, in every parameter."""
        reference = self.reference("experts")[0]
        def scaled(by):
            return {name: [[by * x for x in copies[0]]] for name, copies in reference.items()}
        def neighbour(name):  # the same parameter of the next layer; what exists once stays
            return re.sub(r"^layers\.(\d+)", lambda layer: f"layers.{(int(layer[1]) + 1) % LAYERS}", name)
        exchanged = {name: reference[neighbour(name)] for name in reference}
        for name, wrong in (("control: scaled by 2", scaled(2)), ("control: scaled by 1 + 1e-5", scaled(1 + 1e-5)),
                            ("control: of the next layer", exchanged)):
            errors = {parameter: error for parameter, error in relative_errors(reference, wrong).items()
                      if wrong is not exchanged or parameter.startswith("layers.")}
            for parameter, error in errors.items():
                if error <= BOUND:
                    self.failed.append(f"{name}: {parameter} passes the bound")
            yield self.row(name, worst_by_kind(errors))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("--only", default="", metavar="REGEX", help="layouts whose name matches")
    args = parser.parse_args()
    start, count = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        proof = Proof(args.bin_dir, folder)
        print(f"In units of the bound, 4 × 1.03^{LAYERS} × eps = {BOUND:.2e}:\n")
        print("| layout (ranks) | " + " | ".join(KINDS) + " |\n|---|" + "---|" * len(KINDS))
        for layout in layouts():
            if re.search(args.only, layout[0]):
                print(proof.judge(*layout), flush=True)
                count += 1
        for row in proof.controls():
            print(row, flush=True)
    print(f"\n{count} layouts, {time.monotonic() - start:.0f} s; missed bars: {len(proof.failed)}")
    for failure in proof.failed:
        print(failure)
    sys.exit(1 if proof.failed else 0)


if __name__ == "__main__":
    main()
