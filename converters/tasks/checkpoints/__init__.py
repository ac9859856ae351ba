"""Safe loading of checkpoints: no random weights, and no code of theirs without consent.

`checkpoint` loads transformers models, `torch_weights` reads weights without pickles, `companion_files` writes
tokenizer and configuration without paths of this machine.

Start with `checkpoint.py`.
"""
