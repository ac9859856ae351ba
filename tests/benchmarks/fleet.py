"""Exports of many small encoders on a Dask cluster of this machine: four worker processes of one thread each.

The limit is the machine: the processor time of scheduler, workers and client, divided by the cores. Every encoder is a BERT of two
layers and the width 128 with random weights of its own, 17.5 MB; each export makes the fp32 graph, compares it with the
checkpoint, publishes it in the workers' registry and pushes it to a directory that all share.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.servers import dask_cluster

from benchmarks.measure import Row, row, run

ENCODERS, WORKERS = int(os.environ.get("BENCH_ENCODERS", "40")), 4
VOCABULARY = 30_522
TICKS = os.sysconf("SC_CLK_TCK")


def benchmark() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as directory:
        root = Path(directory)
        return list(_measure(root, write_jobs(root, ENCODERS)))


def _measure(root: Path, jobs: Path) -> Iterator[Row]:
    env = {**os.environ, "REG_HOME": str(root / "home"), "HF_HUB_OFFLINE": "1"}
    env["XDG_CACHE_HOME"] = str(root / "cache")
    reg = Path(sys.executable).with_name("reg")
    with dask_cluster.running(env, root / "cluster", WORKERS) as cluster:
        before = processor_seconds(cluster)
        words = ["--batch", jobs, "--scheduler", cluster.address, "--push", root / "share", "--json"]
        client = run([reg, "export", *words], env)
        used = client.cpu + processor_seconds(cluster) - before
    what = f"{ENCODERS} exports of encoders, {WORKERS} Dask workers"
    cores = os.cpu_count() or 1
    bound, peer = used / cores, "its processor time / cores"
    yield row(what, peer, [(client.wall, bound)], "s", "<= 1.15")
    yield row(what, "10 minutes for 320", [(client.wall, 600 * ENCODERS / 320)], "s", "<= 1")


def processor_seconds(cluster: dask_cluster.Cluster) -> float:
    """Seconds of processor time, user and system, of the cluster's processes so far, with those of children that ended."""
    fields = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in cluster.processes())
    return sum(sum(map(int, each[11:15])) for each in fields) / TICKS


def write_jobs(root: Path, count: int) -> Path:
    """A job file with so many encoders, and beside it their checkpoints."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, logging

    logging.disable_progress_bar()

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map("w{}".format, range(VOCABULARY - 5))]
    backend = Tokenizer(models.WordLevel(dict(zip(words, range(VOCABULARY), strict=True)), unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="[MASK]", **special)
    shape = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    jobs = []
    for number in range(count):
        torch.manual_seed(number)
        source = root / "checkpoints" / str(number)
        BertModel(BertConfig(vocab_size=VOCABULARY, **shape)).save_pretrained(source)
        tokenizer.save_pretrained(source)
        job = {"source": str(source), "name": f"acme/encoder-{number}", "version": "1.0.0", "task": "default"}
        jobs.append(job)
    path = root / "jobs.json"
    path.write_text(json.dumps(jobs))
    return path
