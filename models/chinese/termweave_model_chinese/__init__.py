"""The folder of the model `chinese` of termweave."""
