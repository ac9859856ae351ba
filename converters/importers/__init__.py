"""Existing models: loose files, directories of OpenMed's converter, repositories of the Hub, and what `reg` wrote.

A `Survey` lists the files of a model with their roles, what was read from its graphs, and what documents claim
(`openmed` for directories of OpenMed's converter). `adopt` judges it and fills a workspace: claims of a document are
compared with the files, and never count in a model's favour. `confine` does both in a process of its own.

Start with `survey.py`.
"""
