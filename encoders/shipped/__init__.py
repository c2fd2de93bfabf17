"""Model folders that come with termweave; ``make model`` makes them again."""
