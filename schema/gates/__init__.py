"""The rules that a version must meet before a governed channel may point to it.

A `Policy` has `Rule`s for channels (`rule.py`); a `PromotionCandidate` gets `GateFinding`s. An `EvaluationDocument` is a later measurement.

Start with `policy.py`. The rules in words: docs/gates.md.
Must not import: `inputs`, `formats`. Reading logs and stores is the work of `registry.gates`.
"""
