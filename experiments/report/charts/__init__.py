"""Charts of reports: their contents, their colours, and their drawing by plotly.js and
matplotlib.
"""
