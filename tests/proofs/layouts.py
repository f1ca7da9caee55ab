#!/usr/bin/env python3
"""Every layout trains what one rank trains: one tiny GPT (and one mixture of experts) with the same global batches on one
rank and on products of data, tensor, sequence, pipeline, context and expert parallelism with ZeRO and recomputation, at
most 8 processes each.

fp32: the loss of every step, relative, and every final weight tensor, norm(w - w_ref) / norm(w_ref), from the checkpoint
after the last step, differ by at most 1e-4: sums in another order differ by 1e-7 a step, mistakes in the second digit. With
dp = 2, ZeRO 1 and 2 are bit-equal to ZeRO 0; the losses are within 1e-6 of it where sums go in another order: with clipping,
whose norm is summed by shards, and in ZeRO 2 over several microbatches, which are reduced one by one. bf16, fp16: only the final loss counts, within 1 % of one rank's in the same precision.

usage: layouts.py BIN_DIR [--precision fp32|bf16|fp16] [--steps N] [--only REGEX]
"""
import argparse
import re
import sys
import tempfile
import time
from dataclasses import dataclass

from runs import BASE, EXPERTS, merged, parallel, read_checkpoint, relative_errors, train, zero

SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "zero_bubble")


@dataclass
class Layout:
    name: str
    ranks: int
    changes: tuple = ()
    experts: bool = False
    refused: bool = False  # the configuration's rules must refuse it


def recompute(mode):
    return {"activation_checkpointing": {"mode": mode}}


def micro_batch(samples):
    return {"train_micro_batch_size_per_gpu": samples}


def layouts():
    buckets = {"communication": {"bucket_size_mb": 0.05, "overlap_grad_reduce": False}}
    offload = {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}
    yield Layout("micro batch 8, no accumulation", 1, (micro_batch(8),))
    yield Layout("dp 2", 2)
    yield Layout("dp 2, small buckets, no overlap", 2, (buckets,))
    yield Layout("dp 8, zero 3", 8, (zero(3),))
    yield Layout("dp 2, zero 2, optimizer on the CPU", 2, (zero(2), offload))
    yield Layout("tp 2", 2, (parallel(2),))
    yield Layout("tp 2, gathered outputs", 2, (parallel(2, gather_output=True),))
    yield Layout("tp 2, sequence parallel", 2, (parallel(2, sequence_parallel=True),))
    yield Layout("tp 4, sequence parallel, full recomputation", 4, (parallel(4, sequence_parallel=True), recompute("full")))
    yield Layout("tp 2, selective recomputation", 2, (parallel(2), recompute("selective")))
    for schedule in SCHEDULES:
        yield Layout(f"pp 2, {schedule}", 2, (parallel(pp=2, schedule=schedule),))
    yield Layout("pp 3, uneven stages, 1f1b", 3, (parallel(pp=3, pipeline_layers=[2, 4, 2]),))
    yield Layout("pp 4, zero_bubble, selective recomputation", 4,
                 (parallel(pp=4, schedule="zero_bubble"), recompute("selective")))
    yield Layout("pp 2, zero_bubble, full recomputation", 2, (parallel(pp=2, schedule="zero_bubble"), recompute("full")),
                 refused=True)
    yield Layout("pp 3, interleaved_1f1b", 3, (parallel(pp=3, schedule="interleaved_1f1b"),), refused=True)
    yield Layout("cp 2", 2, (parallel(cp=2),))
    yield Layout("cp 4, zero 3", 4, (parallel(cp=4), zero(3)))
    yield Layout("cp 2 × tp 2 × dp 2, sequence parallel, zero 2", 8, (parallel(2, cp=2, sequence_parallel=True), zero(2)))
    for schedule in SCHEDULES:
        for stage in range(4):
            yield Layout(f"tp 2 × pp 2 × dp 2, {schedule}, zero {stage}", 8, (parallel(2, 2, schedule=schedule), zero(stage)))
    yield Layout("tp 2 × pp 2 × dp 2, 1f1b, sequence parallel, full recomputation, zero 3", 8,
                 (parallel(2, 2, sequence_parallel=True), recompute("full"), zero(3)))
    yield Layout("tp 2 × pp 2 × cp 2, zero_bubble, sequence parallel, selective recomputation, zero 1", 8,
                 (parallel(2, 2, 2, schedule="zero_bubble", sequence_parallel=True), recompute("selective"), zero(1)))
    yield Layout("pp 4 × dp 2, interleaved_1f1b, full recomputation, zero 2", 8,
                 (parallel(pp=4, schedule="interleaved_1f1b"), recompute("full"), zero(2)))
    # The load-balancing loss is a mean over a microbatch, so microbatches stay those of the one rank.
    for stage in range(4):
        yield Layout(f"experts, ep 2, zero {stage}", 2, (parallel(ep=2), zero(stage)), True)
    yield Layout("experts, dp 2, each has all", 2, (), True)
    yield Layout("experts, ep 2, uneven placement", 2, (parallel(ep=2, expert_placement=[[3, 0, 1], [2]]),), True)
    yield Layout("experts, ep 2 = cp 2", 2, (parallel(cp=2, ep=2),), True)
    yield Layout("experts, ep 4 × edp 2, zero 3", 8, (parallel(ep=4), zero(3)), True)
    yield Layout("experts, tp 2 × ep 2 × edp 2, sequence parallel, full recomputation, zero 2", 8,
                 (parallel(2, ep=2, sequence_parallel=True), recompute("full"), zero(2)), True)
    yield Layout("experts, tp 2 × pp 2 × ep 2, zero_bubble, zero 1", 8,
                 (parallel(2, 2, ep=2, schedule="zero_bubble"), zero(1)), True)


def loss_error(reference, run):
    return max(abs(loss / expected - 1) for loss, expected in zip(run.losses, reference.losses))


class Proof:
    """Runs layouts beside their one-rank references and collects what misses its bar."""

    def __init__(self, args, folder):
        self.args, self.folder, self.failed, self.references = args, folder, [], {}
        # A learning rate that ends low: at a constant one, rounding alone moves the last step's loss by per cents.
        low_precision = {args.precision: {"enabled": True}, "scheduler": {"type": "WarmupCosineLR", "params": {
            "warmup_num_steps": args.steps // 10, "total_num_steps": args.steps}}}
        self.base = merged(BASE, low_precision if args.precision != "fp32" else {})

    def run(self, layout, *changes):
        experts = EXPERTS if layout.experts else {}
        config = merged(self.base, experts, *layout.changes, *changes, {"world_size": layout.ranks})
        return train(self.args.bin_dir, self.folder, layout.name, config, self.args.steps)

    def reference(self, experts):
        if experts not in self.references:
            run = self.run(Layout("one rank" + (", experts" if experts else ""), 1, (), experts))
            if run.error:
                sys.exit(f"one rank: {run.error}")
            self.references[experts] = run, read_checkpoint(run.checkpoint)
        return self.references[experts]

    def judge(self, layout, fp32):
        """The layout's row."""
        (reference, weights), run = self.reference(layout.experts), self.run(layout)
        if run.error or layout.refused:
            if not (run.error and layout.refused):
                self.failed.append(f"{layout.name}: {run.error or 'was not refused'}")
            return f"| {layout.name} | {layout.ranks} | {'refused' if layout.refused else 'FAILED'}: {run.error} | |"
        if fp32:
            loss, errors = loss_error(reference, run), relative_errors(weights, read_checkpoint(run.checkpoint))
            worst = max(errors, key=errors.get)
            if not (loss <= 1e-4 and errors[worst] <= 1e-4):
                self.failed.append(f"{layout.name}: loss {loss:.1e}, {worst} {errors[worst]:.1e}, bars 1e-4")
            return f"| {layout.name} | {layout.ranks} | {loss:.1e} | {errors[worst]:.1e} |"
        loss = abs(run.losses[-1] / reference.losses[-1] - 1)
        if not loss <= 0.01:
            self.failed.append(f"{layout.name}: final loss {loss:.2%} off, bar 1 %")
        return f"| {layout.name} | {layout.ranks} | {run.losses[-1]:.4f} | {loss:.2%} |"

    def judge_zero(self):
        """ZeRO 1, 2 and, for information, 3 against 0: the rows."""
        for clip in (0.0, 1.0):
            for microbatches in (1, 4):
                changes = micro_batch(4 // microbatches), {"gradient_clipping": clip}
                runs = [self.run(Layout(f"dp 2, clip {clip}, {microbatches} microbatches, zero {stage}", 2,
                                        (zero(stage), *changes))) for stage in range(4)]
                for stage in (1, 2, 3):
                    same_bits = not clip and (stage == 1 or microbatches == 1)
                    yield self.judge_stage(f"clipping {'at 1' if clip else 'off'}, microbatches: {microbatches}, zero {stage}",
                                           runs[0], runs[stage], stage == 3, same_bits)

    def judge_stage(self, name, stage0, run, for_information, same_bits):
        failure = stage0.error or run.error
        if failure:
            self.failed.append(f"{name}: {failure}")
            return f"| {name} | FAILED: {failure} | |"
        loss = loss_error(stage0, run)
        weight = max(relative_errors(read_checkpoint(stage0.checkpoint), read_checkpoint(run.checkpoint)).values())
        if not for_information and not (max(loss, weight) == 0 if same_bits else loss <= 1e-6):
            self.failed.append(f"{name}: loss {loss:.1e}, weights {weight:.1e}; "
                               f"bar: {'the same bits' if same_bits else 'losses within 1e-6'}")
        cells = ["the same bits" if error == 0 else f"{error:.1e}" for error in (loss, weight)]
        return f"| {name} | {cells[0]} | {cells[1]} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", default="", metavar="REGEX", help="layouts whose name matches; leaves ZeRO's table out")
    args = parser.parse_args()
    fp32, start = args.precision == "fp32", time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        proof = Proof(args, folder)
        print(f"| layout, {args.precision}, {args.steps} steps | ranks | "
              + ("largest relative loss error | largest relative weight error |" if fp32 else "final loss | off by |"))
        print("|---|---|---|---|")
        if not fp32:
            print(f"| one rank | 1 | {proof.reference(False)[0].losses[-1]:.4f} | |")
            print(f"| one rank, experts | 1 | {proof.reference(True)[0].losses[-1]:.4f} | |", flush=True)
        chosen = [layout for layout in layouts() if re.search(args.only, layout.name)]
        for layout in chosen:
            print(proof.judge(layout, fp32), flush=True)
        if fp32 and not args.only:
            print("\n| dp 2 against zero 0 | largest relative loss error | largest relative weight error |\n|---|---|---|")
            for row in proof.judge_zero():
                print(row, flush=True)
    trained = sum(not layout.refused for layout in chosen)
    print(f"\n{trained} layouts, {time.monotonic() - start:.0f} s; missed bars: {len(proof.failed)}")
    for failure in proof.failed:
        print(failure)
    sys.exit(1 if proof.failed else 0)


if __name__ == "__main__":
    main()
