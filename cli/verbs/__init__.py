"""The commands: one thin file per verb."""
