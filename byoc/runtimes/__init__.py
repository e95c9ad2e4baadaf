"""ONNX Runtime and LiteRT: sessions, and the settings that make them exact."""
