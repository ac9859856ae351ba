"""Prove from two files that a small model is the big one, rounded.

Both graphs are read as formulas, from the outputs backwards. Rewrites that keep the function of a graph, up to rounding,
bring both to one form. Then the formulas must be equal, and each stored value of the child must be the parent's, rounded.

Start with `prove.py`; docs/prove.md has the rules.
"""
