"""Prove from two files that one model (the child) is the other (the parent) with rounded weights.

Both graphs are read as formulas, from the outputs backwards. Rewrites that keep the function of a graph, up to rounding,
bring both to one form. Then the formulas must be equal, and each stored value of the child must be the parent's, rounded.

Start with `prove.py`; docs/prove.md has the rules.
"""
