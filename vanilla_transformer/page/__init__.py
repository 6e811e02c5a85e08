"""The page in the browser: outputs, what attends to what, heads switched off, shapes."""
