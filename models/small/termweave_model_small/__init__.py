"""The folder of the model `small` of termweave."""
