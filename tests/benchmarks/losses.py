"""Why a row loses, in a sentence or two each: what a profile of it showed."""

from fnmatch import fnmatchcase

WHY = {
    ("proof of *", "numpy*"): (
        "The start of Python with onnx and pydantic takes 0.3 s of processor time; ours also takes the extremes of each channel, which say if the scales "
        "are those of a rule."
    ),
    ("hf download of *, peak memory", "*"): (
        "Python with the modules of huggingface_hub, which reads pieces of 10 MiB; curl is a process in C."
    ),
    ("hf download of *", "*"): (
        "The client decides: its own function takes as much processor time for the same bytes from nginx (the last row). It starts "
        "Python, and reads 64 KiB at a time. The aim is met against `sha256sum`, and missed against OpenSSL."
    ),
    ("push of *, reg publish, peak memory", "skopeo"): (
        "Python with pydantic, which reads the manifest, and 256 KiB for each of eight uploads; skopeo is in Go."
    ),
    ("Node: download and verify *", "curl*"): (
        "Of the time about a quarter is the start of Node and of the client; a download in a process that runs already takes 0.65 s, "
        "0.39 s of it in the store: bytes are written and synced as a part that can be resumed, and again as a verified piece. "
        "curl syncs nothing. The aim is missed."
    ),
    ("Chromium: first tagged sentence, *", "onnxruntime-web*"): (
        "Mostly IndexedDB: the client writes the model there while it arrives, reads it back and hashes it; with the store in memory the "
        "ratio is 1.4. The peer keeps nothing, so it downloads everything again at the next visit. The aim is missed."
    ),
    ("reg delta make, * GiB, *", "*"): (
        "Two threads encode blocks of 1 MiB while up to four results wait; how many planes are in memory at one moment differs by a few MiB."
    ),
    ("push of *, Hub emulator*", "hf, Xet"): (
        "About half of the difference is there with 22 MiB too (1.76 s against 1.14 s on a slow machine): the modules of the registry, and "
        "15 requests, of which hf makes 5 (which registry it is, its tree, a first commit). For the bytes, `perf` shows the same work on both "
        "sides: SHA-256 is 9 % of the processor time, in OpenSSL here and in hf_xet there. But our hashing ends before hf_xet begins, because "
        "bytes are checked as they leave the store. With hf_xet computing it, in the pass that sends, neither time nor processor time "
        "was less. hf_xet, the same on both sides, uses most of the memory."
    ),
    ("payloads of the update, *", "zstd -19 inside"): (
        "zstd at its slowest level saves 6 to 10 %, and no browser and no phone has it; every one has inflate."
    ),
    ("making a delta, *", "SHA-256*"): (
        "Nine tenths of the time is zlib at level 5 on the planes that can be compressed. Level 1 is more than twice as fast, "
        "and its deltas are 4 to 9 % larger."
    ),
    (
        "applying a delta, *",
        "SHA-256*",
    ): "Inflating, and adding numbers in numpy; a line of 1 Gbit/s brings less than half of that.",
    (
        "applying a delta of *, peak memory",
        "*",
    ): "A few blocks of 1 MiB, and numpy's temporary arrays; it does not grow.",
    ("reg query --remote, reg serve*first snapshot", "snapshot unchanged"): (
        "The first time the file is fetched, unpacked and kept; later it is asked for on the condition that it changed."
    ),
    ("* over 10,000 models, no index yet", "all cores, read and json.loads"): (
        "The peer reads and parses one line of each file. Ours reads each file whole, checks each field and writes the index: of "
        "0.38 ms for a model, strict JSON takes 0.09, fields and rows 0.2, the file 0.05, SQLite 0.04."
    ),
    ("GET of *", "nginx"): (
        "nginx is written in C and sends files from the kernel; ours is Python, one process for each worker, which also answers the questions of "
        "`reg resolve`. If many clients read, put nginx in front (`docs/serve.md`)."
    ),
    ("push of *, ministack", "aws*"): (
        "Of a quarter of a GiB the fixed part of a push counts more: 24 requests beside those of the files, which try a new place, "
        "take notes and swap the index, at a server of one Python process. In processor time ours is ahead."
    ),
    ("push of an unchanged model", "aws*"): (
        "Ours reads the model's index file, and `registry.json`, to check that the place is still the same registry and that this build "
        "may write to it. The peer lists the prefix, one request for each thousand objects."
    ),
    (
        "reg serve, sending blobs, peak memory",
        "nginx",
    ): "Ours is a Python process with its modules, the peer a process in C.",
    (
        "push of *, seaweedfs, peak memory",
        "*",
    ): "botocore's client is most of it, which the peer does not have.",
    ("pull of *, seaweedfs", "dvc"): (
        "dvc writes through the page cache, neither hashes nor waits for the disk, and ends before the bytes are on it. If it verifies and "
        "syncs, it is slower (the row below). An eighth of our processor time is hashing."
    ),
    ("pull of *, seaweedfs, peak memory", "dvc*"): (
        "Eight files, or ranges of one, arrive at a time, each in a block that is hashed before it is written; dvc does not check what it "
        "pulls (`verify` is off)."
    ),
    (
        "pull of *, peak memory",
        "*",
    ): "Each worker hashes a block of 1 MiB before it writes it; the rest is pydantic's modules.",
    ("push of *, Hub emulator", "hf"): (
        "Three quarters of the difference is there with 16 MiB too (2.23 s against 1.72 s, nearly all of it processor time): it comes from "
        "the modules of the registry, and from its requests beside those for the files. With 1 GiB the ratio was 1.04 on this machine."
    ),
    ("push of *, Hub emulator, peak memory", "hf"): (
        "The registry's own modules (pydantic, the ledger) come on top of huggingface_hub, which hf needs too."
    ),
    ("push again of *, one small file changed, *", "aws*"): (
        "Ours adds a version: besides sending two blobs, it reads the index twice and swaps it, writes and removes an intent, and lists the "
        "condemned keys. The peer replaces one object, and records nothing about which files belong together."
    ),
    ("p* again of *", "aws*"): (
        "Python's start, pydantic and botocore's client on our side, botocore alone on the other: nearly all of the time is imports."
    ),
    ("reg add of *", "dvc*"): (
        "The imports decide: onnx and numpy, which read the graph, and pydantic for its manifest; dvc reads none."
    ),
}
"""By patterns of a row's two names; the first that fits."""


def why(what: str, peer: str) -> str:
    fitting = (
        reason
        for (ours, theirs), reason in WHY.items()
        if fnmatchcase(what, ours) and fnmatchcase(peer, theirs)
    )
    return next(fitting, "not profiled yet")
