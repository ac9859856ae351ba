"""Pages for people, without scripts or external files.

`pages` has a view for each template, `model` what they show of a model, `rendering` also a difference as one file.
"""
