"""TensorFlow Lite front end: read a model, recognise its operators, cut parts out of it."""
