"""The source files of an export, and the facts about them that may be published.

`location` finds the directory of a checkpoint, `hub_files` downloads from the Hub, `source_files` finds the files of a
checkpoint, hashes each once in a process, and reads the front matter of
its model card, `scrub` removes paths of this machine, `toolchain` names the tools and versions that
shape exported bytes.

Start with `source_files.py`.
Must not import: any other package of `converters`.
"""
