"""Charts of reports: what is on them, their colours, and their drawing by plotly and by matplotlib."""
