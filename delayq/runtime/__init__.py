"""The consumer: the engine decides, its driver acts, and pools run the handlers."""
