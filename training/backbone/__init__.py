"""The backbone of a run: where it is, what of it is trained, how far it counts; and a small new one."""
