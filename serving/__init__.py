"""Serving: a server of models over HTTP, and the connection of a search cluster with it, so that any client can search learned signals."""
