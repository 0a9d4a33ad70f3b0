"""The consumer at work: the engine decides, its driver acts; pools run the handlers."""
