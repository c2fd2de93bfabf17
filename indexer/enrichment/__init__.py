"""Write the fields of the signals into an existing index of another application, and take them out again."""
