"""Serving: models over HTTP, and the cluster connected to them, so that any client searches learned signals."""
