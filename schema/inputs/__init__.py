"""Documents that people write: recipes, families, job files, lock files, trust files.

`RecipeFile` has the steps and outputs of an export, `FamilyFile` describes a backbone with its heads, `JobRow` is one
export of a batch, `Lockfile` has the exact artifacts of an app's build, `Trust` has the keys whose signatures count.

Start with `recipe_file.py`. An error names the key and its allowed values.
Must not import: `compare`, `formats`. Files are read by `converters`, `registry` and `cli`.
"""
