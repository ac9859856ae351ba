"""Find the source files of an export, and the facts about them that may be published.

`source_files` lists and hashes files, and removes paths of a machine from them. `hub` downloads a repository's files.
`toolchain` has the versions of tools, and finds plug-ins. No module here imports another package of `converters`.
"""
