"""The backbone of a run: how it is found, which layers are trained, how long its inputs are; and a small new one."""
