"""What delayq says to Redis: keys, commands and replies, one typed method a script. No I/O."""
