"""The rules that a version must meet before a governed channel may point to it.

A `Policy` has `Rule`s. Checking a `PromotionCandidate` against them gives `GateFinding`s.

Start with `policy.py`. The rules in words: docs/gates.md. Must not import: `inputs`, `formats`. Reading logs and stores
is the work of `registry.gates`.
"""
