"""Schedules chosen by measuring: what can be chosen, the moves from one choice to another, and what was measured."""
