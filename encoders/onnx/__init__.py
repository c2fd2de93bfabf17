"""ONNX graphs: run them with ONNX Runtime, export them, check them before they are opened."""
