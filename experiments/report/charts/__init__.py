"""Charts of reports: contents, colours, and drawing with plotly.js and matplotlib."""
