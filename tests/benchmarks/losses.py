"""Why a row loses, in a sentence or two each: what a profile of it showed."""

WHY: dict[tuple[str, str], str] = {
    ("push of 1 GiB, reg, seaweedfs, peak memory", ""): (
        "80 MiB of it are there for a set of 17 MiB too: Python, pydantic and botocore's client. The rest are four parts of 5 MiB "
        "on their way and a block of 1 MiB for each worker; it does not grow with the files."
    ),
    ("pull of 1 GiB, reg, seaweedfs, peak memory", "dvc"): (
        "Eight files, or ranges of one, arrive at a time, each in a block that is hashed before it is written; dvc checks nothing that it pulls (`verify` is off)."
    ),
    ("push of 1 GiB, reg, Hub emulator, peak memory", "hf"): (
        "The registry's own modules (pydantic, the ledger) stand beside huggingface_hub, which hf needs too."
    ),
    ("push of 1 GiB, reg, seaweedfs, peak memory", "oras"): (
        "As with aws: botocore's client is most of it, where oras has requests alone."
    ),
}
"""By the beginnings of a row's two names."""


def why(what: str, peer: str) -> str:
    for (ours, theirs), reason in WHY.items():
        if what.startswith(ours) and peer.startswith(theirs):
            return reason
    return "not profiled yet"
