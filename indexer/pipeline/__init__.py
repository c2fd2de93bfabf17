"""The build pipeline: read, encode, build, send, acknowledge."""
