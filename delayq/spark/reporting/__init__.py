"""Figures of what queues have done, from their ledgers, and a page that shows them."""
