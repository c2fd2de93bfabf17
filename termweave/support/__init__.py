"""Helpers that know nothing about search: messages, argument checks, paths, private and atomic files, file locks, Python processes, batching."""
