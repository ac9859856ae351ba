"""Existing models: loose files, directories of OpenMed's converter, repositories of the Hub, and what `reg` wrote.

A `Survey` lists the files of a model with their roles, what was read from its graphs, and what documents claim. `adopt`
compares the claims with the files, in a process of its own (`confine`); they never count in a model's favour.

Start with `survey.py`.
"""
