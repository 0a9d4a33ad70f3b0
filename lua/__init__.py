"""The Lua scripts, one state transition each; ``delayq.scripts`` has a typed method for every one."""
