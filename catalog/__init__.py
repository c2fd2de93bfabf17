"""The catalog: what the server stores about generations, and how their documents are laid out. It searches and builds nothing."""
