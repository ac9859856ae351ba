"""`reg import` of a directory that OpenMed's converter wrote.

`survey` lists what is there, `artifacts` reads the graphs again, `claimed` compares them with the version 1
manifest.

Start with `openmed.py`.
"""
