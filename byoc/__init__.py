"""The compiler and the host runtime - ONNX model to Package to Program."""
