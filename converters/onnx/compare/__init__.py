"""Compare two model files: facts, stored tensors, nodes. Memory stays flat.

`compare_files` is the entry. A `Dataflow` is what a graph computes, whatever its values are called; it
gives the semantic digest.

Start with `compare_files.py`.
"""
