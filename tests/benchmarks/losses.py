"""Why a row loses, in a sentence or two each: what a profile of it showed."""

from fnmatch import fnmatchcase

WHY = {
    ("pull of *, ministack", "aws*"): (
        "ministack, which is made for tests, reads the whole object for every range that it is asked for; ours asks for 4 MiB at a time, "
        "the peer for 8, since a transfer may have no more than 64 MiB. Servers that seek do not mind (SeaweedFS above), and our own "
        "processor time is the smaller one."
    ),
    ("push of *, ministack, peak memory", "aws*"): "As of the push to SeaweedFS.",
    ("push of *, Hub emulator*", "hf, Xet"): (
        "Every byte is hashed once more as it leaves the store, so that what is sent is what the manifest names; hf_xet, which cuts "
        "and hashes it again, is the same in both, and has most of the memory."
    ),
    ("GET of *", "nginx"): (
        "nginx is written in C and sends files from the kernel; ours is one process in Python, which answers the questions of "
        "`reg resolve` beside. Where many clients read, put nginx in front (`docs/serve.md`)."
    ),
    ("push of an unchanged model", "aws*"): (
        "The model's index file, and `registry.json`, which says that the place still is the registry that it was, and may be written to "
        "by this build. The peer lists the prefix, a request for each thousand objects."
    ),
    ("android export, peak memory", "openmed"): (
        "The peak is ONNX Runtime while it writes the `.ort` file; the checkpoint lies in memory beside it, since every file is "
        "measured against it afterwards. The peer measures none."
    ),
    ("reg serve, sending blobs, peak memory", "nginx"): "A Python process with its modules beside one in C.",
    ("push of *, seaweedfs, peak memory", "aws*"): (
        "80 MiB of it are there for a set of 27 MiB too: Python, pydantic and botocore's client. The rest are four parts of 8 MiB on "
        "their way and a block of 1 MiB for each worker; it does not grow with the files."
    ),
    (
        "push of *, seaweedfs, peak memory",
        "*",
    ): "botocore's client is most of it, which the peer does not have.",
    ("export of an encoder, fp32, peak memory", "optimum"): (
        "transformers 5 imports PyTorch's compiler and sympy (75 MB) whatever is asked of it; Optimum asks for 4.57."
    ),
    ("pull of *, seaweedfs", "dvc"): (
        "dvc writes through the page cache, neither hashes nor waits for the disk, and is done before the bytes are there; told to "
        "verify, and synced, it is the slower one (the row below). Of ours an eighth of the processor time is hashing."
    ),
    ("pull of *, seaweedfs, peak memory", "dvc*"): (
        "Eight files, or ranges of one, arrive at a time, each in a block that is hashed before it is written; dvc checks nothing "
        "that it pulls (`verify` is off)."
    ),
    (
        "pull of *, peak memory",
        "*",
    ): "Each worker hashes a block of 1 MiB before it writes it, beside pydantic's modules.",
    ("push of *, Hub emulator, peak memory", "hf"): (
        "The registry's own modules (pydantic, the ledger) stand beside huggingface_hub, which hf needs too."
    ),
    ("push again of *, one small file changed, *", "aws*"): (
        "Ours adds a version: the index is read twice and swapped, an intent left and taken back, the condemned keys listed, beside "
        "the two blobs. The peer replaces one object, and nothing says which files belong together."
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
