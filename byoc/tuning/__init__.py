"""Tuning: schedules chosen by measuring random changes of tilings, groups and residents."""
