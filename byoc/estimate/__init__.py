"""Cycle estimates of tiles, layers, groups and command streams, used to choose schedules."""
