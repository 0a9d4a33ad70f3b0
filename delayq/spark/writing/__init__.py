"""Writing: each row of a table or of a stream becomes exactly one message."""
