"""The protocol with Redis: keys, commands and replies, with one typed method for each script. No I/O."""
