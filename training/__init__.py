"""Training: from a data set to a model folder. Needs the extra ``[train]``.

``termweave train`` is `run`: `setup` reads the data and finds the backbone (`backbone_model`), `mixture` prepares the data sets as the method
says and makes its fits, `trainer` takes the steps, `dev_measure` ranks held-out questions, `model_folder` writes what is left. `methods` has one
class for each paper's method, and the base of each kind of model, whose parts are in `term_weights`, `dense` and `ranker`.
"""
