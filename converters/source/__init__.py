"""The source files of an export, and the facts about the files that may be published.

`location` finds the directory of a checkpoint or downloads it from the Hub. `source_files` lists, hashes and scrubs files,
and reads model cards. `toolchain` names the tools and versions that shape exported bytes, and finds plug-ins. Must not
import: any other package of `converters`.
"""
