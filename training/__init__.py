"""Data set -> model: pairs, hard negatives, cached states, heads, figures. Needs the extra ``[train]``.

`shipped` is the recipe of the model that comes with termweave; `anchored` the method it uses; `measure` the table in its card.
"""
