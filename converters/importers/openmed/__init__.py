"""`reg import` of a directory that OpenMed's converter wrote.

`openmed` surveys what is there, `artifacts` reads the graphs again and compares them with the version 1 manifest.

Start with `openmed.py`.
"""
