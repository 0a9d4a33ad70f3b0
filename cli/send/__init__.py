"""``delayq send``: one message, or a file of them."""
