"""The rules that a version must meet before a governed channel may point to it.

A `Policy` has `Rule`s for channels, in `rule.py`; a `PromotionCandidate` gets a `GateFinding` for each. An `Evaluation` is a later measurement of published bytes.

Start with `policy.py`. The rules in words: docs/gates.md.
Must not import: `inputs`, `formats`. Reading logs and stores is the work of `registry.gates`.
"""
