"""Packages outside the project, as somebody else would write them, and the means to install them
for one test.
"""
