"""Functions that several passes share: graphs, files of models, and samples with the comparison of outputs."""
