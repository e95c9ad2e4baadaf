"""The TensorFlow Lite front end: reading a model, recognising its operators, cutting parts out of it."""
