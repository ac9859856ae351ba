"""Documents that people write: recipes, families, job files, lock files, trust files.

`RecipeFile` says what to make of a checkpoint, `FamilyFile` describes a backbone with its heads, `JobRow` is one export
among many, `Lockfile` pins what an app's build takes, `Trust` says whose signatures count.

Start with `recipe_file.py`. An error names the key and what it must be.
Must not import: `compare`, `formats`. Files are read by `converters`, `registry` and `cli`.
"""
