"""ONNX graphs of models: run them with ONNX Runtime, export them, check them before they are opened."""
