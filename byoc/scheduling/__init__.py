"""Layers and tilings become a stream of steps, by one of two schedules."""
