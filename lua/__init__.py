"""The Lua scripts, one state transition each; ``delayq.protocol.queue_commands`` has a typed method for every one."""
