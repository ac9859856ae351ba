"""Find the source files of an export, and the facts about them that may be published.

`source_files` lists, hashes and scrubs files, and reads model cards. `hub` downloads files of a repository on the Hub.
`toolchain` names the tools and versions that shape exported bytes, and finds plug-ins. Must not import: any other package of
`converters`.
"""
