"""Training: from a data set to a model folder. Needs the extra ``[train]``.

``termweave train`` is `run`: `setup` reads the data and finds the backbone, `mixture` prepares the data sets with the family of the method and
makes its fits, `trainer` takes the steps, `model_folder` writes what is left. `methods` has one file for each paper's method; a kind of model
is a family (`families`), such as `term_weights`. `recipes` has the recipe of the shipped model.
"""
