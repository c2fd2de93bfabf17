"""Output that several commands share."""
