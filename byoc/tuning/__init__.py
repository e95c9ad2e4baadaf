"""Schedules chosen by measurement: what can be chosen, moves between schedules, and measured results."""
