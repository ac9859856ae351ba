"""The source files of an export, and the facts about them that may be published.

`location` finds the directory of a checkpoint or downloads it from the Hub, `source_files` lists and hashes files and reads
model cards, `scrub` removes paths of this machine, `toolchain` names the tools and versions that shape exported bytes, and
finds plug-ins. Must not import: any other package of `converters`.
"""
