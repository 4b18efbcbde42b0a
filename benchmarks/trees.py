"""The inputs: made trees of many small files, and real trees brought by package registries."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from atoll.lab import inputs
from atoll.lab.trees import text
from benchmarks.harness import progress

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "target" / "benchmarks" / "trees"
PER_FOLDER = 1000


def small_files(folder: Path, files: int, size: int = 4096, compressible: bool = True, seed: int = 1) -> Path:
    """`files` files of `size` bytes, a thousand in each folder, no two alike."""
    rng = random.Random(seed)
    for start in range(0, files, PER_FOLDER):
        inner = folder / f"d{start // PER_FOLDER:04d}"
        inner.mkdir(parents=True, exist_ok=True)
        for index in range(start, min(files, start + PER_FOLDER)):
            data = text(rng, size) if compressible else rng.randbytes(size)
            (inner / f"f{index:06d}.txt").write_bytes(data)
    return folder


def cached_small_files(files: int, compressible: bool = True) -> Path:
    """The same, made once and kept below target/."""
    folder = CACHE / f"{files}-{'text' if compressible else 'random'}"
    if not folder.with_suffix(".done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        progress(f"making {files:,} files")
        small_files(folder, files, compressible=compressible)
        folder.with_suffix(".done").touch()
    return folder


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SystemExit(
            f"benchmarks: `{' '.join(command[:3])}` failed ({last}); a package registry is needed."
        )


def real_tree() -> Path:
    """A project of some 35,000 files and 600 MB, all under git: npm packages and a Python environment."""
    folder = CACHE / "real"
    done = CACHE / "real.done"
    if done.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    progress("bringing a real tree from the package registries (once)")
    app = folder / "app"
    shutil.copytree(inputs.DATA / "npm-17800", app)
    _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], app)
    _run([sys.executable, "-m", "venv", "--copies", "venv"], folder)
    requirements = inputs.DATA / "python" / "requirements.txt"
    _run(["venv/bin/python", "-m", "pip", "install", "-q", "-r", str(requirements)], folder)
    git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]
    _run([*git, "init", "-q"], folder)
    _run([*git, "add", "-A", "-f"], folder)
    _run([*git, "commit", "-q", "-m", "everything"], folder)
    _run([*git, "repack", "-a", "-d", "-q"], folder)  # a loose object for each file would double their number
    done.touch()
    return folder


def measure(folder: Path) -> tuple[int, int]:
    """Files and bytes below a folder."""
    files = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            files += 1
            size += os.lstat(os.path.join(path, name)).st_size
    return files, size
