"""Workflows - the dla command, reports, reproductions."""
