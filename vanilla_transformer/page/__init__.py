"""The page in the browser: outputs, attention, heads switched off, shapes."""
