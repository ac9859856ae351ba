"""Import existing models: loose files, directories of OpenMed's converter or of `reg`, and repositories of the Hub.

A `Survey` lists the files of a model with their roles, the facts of its graphs, and the claims of documents. `adopt` compares
the claims with the files, in a separate process (`confine`). Claims never count in a model's favour.

Start with `survey.py`.
"""
