"""A registry in a repository on the Hugging Face Hub, with a card and, for one model, the files that other libraries load.

Start with `hub.py`.
Must not import: other kinds of stores.
"""
