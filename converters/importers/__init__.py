"""Import existing models: loose files, directories of OpenMed's converter or of `reg`, and repositories of the Hub.

A `Survey` has the models of a source as artifacts, the companions, and the claims of documents. `adopt` places the files and
compares the claims with them, in a separate process (`confine`). Claims never count in a model's favour.

Start with `survey.py`.
"""
