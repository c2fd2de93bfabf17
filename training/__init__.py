"""Data set -> model: pairs, hard negatives, cached states, heads, figures. Needs the extra ``[train]``.

A run: `prospect` reads and draws, `materials` and `states` prepare, `lessons` say what a step learns, `loop` takes the steps, `learning`
joins them for one collection or a mixture, `run` is `termweave train`. `methods` says what there is, `shipped` is the recipe of the model
that comes with termweave, `measure` the table in its card.
"""
