"""Scheduling: two schedules that turn layers and tilings into a stream of steps."""
