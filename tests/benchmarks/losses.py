"""Why a row loses, in a sentence or two each: what a profile of it showed."""

WHY: dict[tuple[str, str], str] = {}
"""By the beginnings of a row's two names."""


def why(what: str, peer: str) -> str:
    for (ours, theirs), reason in WHY.items():
        if what.startswith(ours) and peer.startswith(theirs):
            return reason
    return "not profiled yet"
