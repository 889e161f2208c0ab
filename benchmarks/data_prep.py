"""Throughput and memory of preparing CC100+RoBERTa: ``python -m benchmarks.data_prep SOURCE …``.

SOURCE is real text: files, folders or archives as ``alibi-fairseq prepare`` takes them. It is
repeated, in documents of about 4 kB, to every one of the sizes, and each is prepared by a command of
its own with as many workers as its memory allows. Measured are the seconds and the processor time of
every stage, and the memory of the command and all its processes together: their proportional set
sizes (PSS, where shared pages count once), five times a second.

Repeated text has fewer different words than as much real text, which the training of the tokeniser
notices and nothing else does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import psutil

from alibi_fairseq.data.cc100_roberta import most_workers
from alibi_fairseq.data.documents import portions, read
from alibi_fairseq.data.sources import text_files
from alibi_fairseq.files import check_disk
from alibi_fairseq.results.provenance import collect_provenance
from alibi_fairseq.results.schema import new_document, save_document
from benchmarks.common import command_line

STAGES = ("reading", "tokeniser", "validation", "tokenising", "joining")
RESULTS = Path(__file__).resolve().parents[1] / "results" / "data-prep"
DOCUMENT = 4000  # bytes, about
PAUSE = 0.2  # seconds between two looks at the processes


def short_documents(sources: list[Path]) -> Iterator[bytes]:
    """The documents of the sources, cut to the length of a web page."""
    for portion in portions([file for source in sources for file in ):
        for document in read(portion):
            lines: list[bytes] = []
            for line in document.text.splitlines(keepends=True):
                lines.append(line)
                if sum(map(len, lines)) >= DOCUMENT:
                    yield b"".join(lines)
                    lines = []
            if lines:
                yield b"".join(lines)


def write_text(sources: list[Path], path: Path, size: int) -> None:
    """A file of about ``size`` bytes with an empty line behind every document."""
    documents = cycle(short_documents(sources))
    with open(path, "wb") as out:
        while out.tell() < size:
            out.write(b"\n".join([*islice(documents, 1000), b""]))


class Watch:
    """What a command and its processes take, stage by stage."""

    def __init__(self, command: list[str], out: Path, log: Path):
        with open(log, "w") as stream:
            self._root = psutil.Popen(command, stdout=stream, stderr=subprocess.STDOUT)
        # The file that appears when a stage is over; the first one's end is what is printed.
        self._ends = {
            "tokeniser": out / "work" / "sentencepiece.model",
            "validation": out / "work" / "parts",
            "tokenising": out / "work" / "data-bin",
            "joining": out / "data-bin",
        }
        self._log = log
        self._processor: dict[int, float] = {}  # process -> seconds, as last seen
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.processor = dict.fromkeys(STAGES, 0.0)
        self.peak = dict.fromkeys(STAGES, 0)
        self.load: list[float] = []

    def until_done(self) -> None:
        """Look at the processes until the command has ended.

        Raises:
            RuntimeError: it failed; with the end of what it printed.
        """
        then, before = time.perf_counter(), 0.0
        while self._root.poll() is None:
            stage = self._stage()
            self.peak[stage] = max(self.peak[stage], self._memory())
            now, after = time.perf_counter(), sum(self._processor.values())
            self.seconds[stage] += now - then
            self.processor[stage] += after - before
            self.load.append(os.getloadavg()[0])
            then, before = now, after
            time.sleep(PAUSE)
        if self._root.returncode != 0:
            raise RuntimeError(f"The preparation failed:\n{self._log.read_text()[-2000:]}")

    def _stage(self) -> str:
        if "training sentencepiece" not in self._log.read_text():
            return "reading"
        return next((stage for stage, end in self._ends.items() if not end.exists()), "joining")

    def _memory(self) -> int:
        total = 0
        for process in [self._root, *self._root.children(recursive=True)]:
            try:
                times = process.cpu_times()
                self._processor[process.pid] = times.user + times.system
                total += process.memory_full_info().pss
            except psutil.Error:  # it has ended meanwhile
                continue
        return total


def measure(text: Path, out: Path, memory: float) -> list[dict]:
    """Prepare a text and describe every stage in a cell, and the whole in the last one."""
    workers = most_workers(memory)
    command = [sys.executable, "-m", "alibi_fairseq", "prepare", "cc100-roberta", str(text)]
    command += ["--out", str(out), "--memory", str(memory), "--workers", str(workers)]
    watch = Watch(command, out, out.with_suffix(".log"))
    watch.until_done()
    manifest = json.loads((out / "data-bin" / "manifest.json").read_text())
    size = text.stat().st_size / 1e6
    case = {
        **{
            "name": "preparation of cc100-roberta",
            "baseline": None,
            "ratio": None,
            "text_gb": f"{size / 1e3:.2f}",
        },
        **{"workers": workers, "memory_limit_gb": memory},
    }
    seconds, processor = sum(watch.seconds.values()), sum(watch.processor.values())
    whole = {
        "stage": "all",
        "text_mb": size,
        "seconds": seconds,
        "mb_per_second": size / seconds,
        "core_seconds": processor,
        "peak_memory_mb": max(watch.peak.values()) / 1e6,
        "load_average": statistics.mean(watch.load),
        "data_bin_mb": sum(f["bytes"] for f in manifest["files"].values()) / 1e6,
        "tokens": sum(split["tokens"] for split in manifest["splits"].values()),
        "shards": len(manifest["shards"]),
    }
    stages = [
        {
            "stage": stage,
            "text_mb": size,
            "seconds": watch.seconds[stage],
            "mb_per_second": size / max(watch.seconds[stage], PAUSE),
            "core_seconds": watch.processor[stage],
            "peak_memory_mb": watch.peak[stage] / 1e6,
        }
        for stage in STAGES
    ]
    return [{**case, **cell} for cell in (*stages, whole)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="real text")
    parser.add_argument("--sizes", nargs="+", type=float, default=[0.25, 1, 2], metavar="GB")
    parser.add_argument(
        "--memory", type=float, default=4.0, metavar="GB", help="given to the command"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "cc100-roberta.json", metavar="FILE")
    args = parser.parse_args()
    began, cells = time.time(), []
    for size in args.sizes:
        with tempfile.TemporaryDirectory() as folder:  # TMPDIR says where
            check_disk(folder, 3e9 * size, "The benchmark")
            text = Path(folder) / "text.txt"
            write_text(args.sources, text, round(size * 1e9))
            cells += measure(text, Path(folder) / "out", args.memory)
        print("{text_gb} GB: {seconds:.0f} s, {peak_memory_mb:.0f} MB".format(**cells[-1]))
        save(args, cells, time.time() - began)


def save(args: argparse.Namespace, cells: list[dict], seconds: float) -> None:
    provenance = collect_provenance(
        seconds=seconds, precision=None, seed=1, command=command_line("data_prep")
    )
    document = new_document("benchmark", "repeated text", provenance, cells)
    save_document(document, args.out)
    print(f"written to {args.out}", flush=True)


if __name__ == "__main__":
    main()
