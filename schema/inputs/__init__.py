"""Documents that people write: recipes, families, job files, lock files, trust files, dossiers.

Start with `recipe_file.py`. An error names the key and its allowed values. Must not import: `compare`, `formats`. Files
are read by `converters`, `registry` and `cli`.
"""
