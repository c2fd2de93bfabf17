"""What protects the pages: who may ask, for what, how often and for how long."""
