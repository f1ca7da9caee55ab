"""Traces a short training run and lets nsys-ai, an independent reader of Nsight Systems files, open the trace.

Environment: TAUT_BIN_DIR (where `taut` is), TAUT_CACHE_DIR (./test puts nsys-ai there). Exits 77, "skipped", without nsys-ai.
"""
import glob
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["TAUT_BIN_DIR"])
CONFIG = {
    "model": {"hidden_size": 32, "num_layers": 2, "num_attention_heads": 2, "ffn_hidden_size": 64, "seq_length": 32, "vocab_size": 288},
    "data": {"path": "corpus.txt", "num_workers": 1},
    "world_size": 1, "train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "train_steps": 4,
}


def find_nsys_ai():
    found = shutil.which("nsys-ai")
    return found or next(iter(glob.glob(os.environ.get("TAUT_CACHE_DIR", "") + "/venv-nsys-ai-*/bin/nsys-ai")), None)


def run(*command, cwd):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    nsys_ai = find_nsys_ai()
    if not nsys_ai:
        print("skipped: nsys-ai is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "corpus.txt").write_text("The quick brown fox jumps over the lazy dog. " * 200)
        pathlib.Path(folder, "config.json").write_text(json.dumps(CONFIG))
        run(BIN / "taut", "train", "config.json", "--trace", "run.db", cwd=folder)
        # nsys-ai goes by the file's ending.
        trace = pathlib.Path(folder, "run.sqlite")
        pathlib.Path(folder, "run.db").rename(trace)

        with sqlite3.connect(f"file:{trace}?mode=ro", uri=True) as database:
            ranges = database.execute("SELECT count(*) FROM NVTX_EVENTS").fetchone()[0]
            kernels = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
        assert ranges > 0, "the trace holds no NVTX ranges"

        info = run(nsys_ai, "info", trace, cwd=folder)
        print(info)
        assert f"NVTX: {ranges}" in info.replace(",", ""), f"nsys-ai info does not count {ranges} ranges"
        assert f"Kernels: {kernels}" in info.replace(",", ""), f"nsys-ai info does not count {kernels} kernels"
        print(run(nsys_ai, "summary", trace, cwd=folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
