"""Models that exist already: loose files, directories of OpenMed's converter, ORT model packages.

`add_files` takes loose files, `openmed` and `packages` take directories. Files are read and judged as exports are; what a
document claims is compared with them and never believed in a model's favour.

Start with `add_files.py`.
"""
