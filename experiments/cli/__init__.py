"""The dla command; each file has one command or a few that belong together."""
