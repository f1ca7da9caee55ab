"""What must hold for the whole house: who may include whom, file sizes, links, scripts, samples.

Environment: TAUT_SOURCE_DIR (the checkout), TAUT_BIN_DIR (where `taut` is).
"""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["TAUT_SOURCE_DIR"])
BIN = pathlib.Path(os.environ["TAUT_BIN_DIR"])
NOT_OURS = {".git", ".venv", "build", "out", "shared", "__pycache__"}

# Who may know whom: folder -> prefixes of what it may include from the house, besides itself. The longest folder wins.
ARROWS = {
    "cli": ["analyzer/", "runtime/config/", "runtime/launch/", "runtime/data/", "tracer/"],
    "gui": ["analyzer/", "tracer/store/", "runtime/config/"],
    "analyzer": ["tracer/store/", "runtime/config/"],
    "runtime": ["runtime/", "kernels/", "tracer/annotate/"],
    "runtime/config": [],
    "runtime/launch": ["runtime/config/", "tracer/annotate/"],
    "runtime/data": ["runtime/config/", "tracer/annotate/"],
    "runtime/train": ["runtime/", "kernels/", "tracer/annotate/", "tracer/collect/torch_observer.h"],
    "kernels": [],
    "tracer/annotate": [],
    "tracer/store": [],
    "tracer/collect": ["tracer/store/", "tracer/annotate/"],
}
# Libraries that only some folders may see: pattern of the include -> (folders that may, why).
LIBRARIES = {
    r"(torch|ATen|c10)/": (
        ["runtime/comm", "runtime/parallel", "runtime/model", "runtime/optim", "runtime/checkpoint", "runtime/train",
         "tracer/collect/torch_observer", "tests"],
        "LibTorch belongs to the training rank and the observer"),
    r"sqlite3\.h": (["tracer/store", "analyzer", "tests"], "the runtime and the window never see SQLite"),
    r".*ProcessGroupGloo\.hpp": (["runtime/comm"], "one file knows how Gloo's headers are found"),
    r"imgui_te_": (["tests"], "the test engine's licence keeps it out of what is shipped"),
    r"gtest/": (["tests"], "tests only"),
}
SOURCE = {".h", ".cpp", ".cu", ".cuh", ".c"}


def files(*suffixes):
    """The checkout's own files, as paths relative to its root."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in NOT_OURS]
        for name in names:
            path = pathlib.Path(folder, name)
            if not path.is_symlink() and (not suffixes or path.suffix in suffixes):
                yield path.relative_to(ROOT)


def text(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def includes(path):
    """(line number, quoted?, what) of every include line."""
    for number, line in enumerate(text(path).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match[1] == '"', match[2]


def home(path):
    """The entry of ARROWS that this file lives under, or None (tests, taut.h)."""
    holders = [folder for folder in ARROWS if str(path).startswith(folder + "/")]
    return max(holders, key=len) if holders else None


class House(unittest.TestCase):
    def no(self, complaints):
        self.assertFalse(complaints, "\n" + "\n".join(complaints))

    def test_includes_follow_the_arrows(self):
        complaints = []
        for path in files(*SOURCE):
            folder = home(path)
            if folder is None:
                continue
            for number, quoted, what in includes(path):
                if not quoted or what == "taut.h":
                    continue
                if not (ROOT / what).exists():
                    complaints.append(f"{path}:{number}: \"{what}\" is not named from the root")
                elif not what.startswith(tuple([folder + "/"] + ARROWS[folder])):
                    complaints.append(f"{path}:{number}: {folder} may not know {what}")
        self.no(complaints)

    def test_libraries_stay_in_their_rooms(self):
        complaints = []
        for path in files(*SOURCE):
            for number, _, what in includes(path):
                for pattern, (allowed, why) in LIBRARIES.items():
                    if re.match(pattern, what) and not str(path).startswith(tuple(allowed)):
                        complaints.append(f"{path}:{number}: {what}: {why}")
        self.no(complaints)

    def test_gloo_headers_have_one_reader(self):
        readers = {str(p) for p in files(*SOURCE) for _, _, what in includes(p)
                   if what.endswith("ProcessGroupGloo.hpp")}
        self.assertLessEqual(len(readers), 1, readers)

    def test_no_file_is_longer_than_800_lines(self):
        self.no([f"{path}: {count} lines" for path in files(*SOURCE, ".py", ".sh", ".cmake")
                 if (count := len(text(path).splitlines())) > 800])

    def test_headers_are_included_once(self):
        self.no([str(path) for path in files(".h", ".cuh") if "#pragma once" not in text(path)])

    def test_links_in_documents_lead_somewhere(self):
        complaints = []
        for path in files(".md"):
            for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text(path)):
                if "://" not in link and not link.startswith("mailto:") and not (ROOT / path.parent / link).exists():
                    complaints.append(f"{path}: {link}")
        self.no(complaints)

    def test_folders_named_in_the_readme_exist(self):
        named = re.findall(r"^\| `([a-z_/.]+/)` \|", text("README.md"), re.MULTILINE)
        self.assertTrue(named)
        self.no([folder for folder in named if not (ROOT / folder).is_dir()])

    def test_no_path_of_one_machine(self):
        pattern = re.compile(r"/(?:work|root|home/[a-z]+)/[A-Za-z]")
        self.no([f"{path}:{number}: {line.strip()}" for path in files(*SOURCE, ".py", ".sh", ".cmake", ".json", ".md", ".txt", "")
                 for number, line in enumerate(text(path).splitlines(), 1)
                 if pattern.search(line) and path.name != pathlib.Path(__file__).name])

    def test_shell_scripts_parse(self):
        scripts = [path for path in files(".sh", "") if path.suffix == ".sh" or re.match(r"#!.*\b(ba)?sh\b", text(path))]
        self.assertIn(pathlib.Path("quickstart"), scripts)
        for script in scripts:
            run = subprocess.run(["bash", "-n", ROOT / script], capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)

    def test_commands_say_what_they_do(self):
        for command in ("quickstart", "test"):
            run = subprocess.run([ROOT / command, "--help"], capture_output=True, text=True, cwd="/")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("--dry-run", run.stdout)

    def test_dry_run_installs_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder, "cache")
            run = subprocess.run([ROOT / "quickstart", "--dry-run"], capture_output=True, text=True, cwd="/",
                                 env={**os.environ, "TAUT_CACHE": str(cache)})
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("torch==", run.stdout)
            self.assertFalse(cache.exists())

    @unittest.skipUnless((BIN / "taut").exists(), "taut is not built")
    def test_every_sample_is_valid(self):
        samples = sorted((ROOT / "samples").glob("*.json"))
        self.assertTrue(samples)
        for sample in samples:
            self.assertTrue(text(sample).startswith("//"), f"{sample.name} does not say what it shows")
            run = subprocess.run([BIN / "taut", "train", sample, "--dry-run"], capture_output=True, text=True, cwd="/")
            self.assertEqual(run.returncode, 0, f"{sample.name}: {run.stdout}{run.stderr}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
