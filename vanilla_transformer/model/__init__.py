"""The model itself: exactly the files that a saved model carries beside its weights."""
