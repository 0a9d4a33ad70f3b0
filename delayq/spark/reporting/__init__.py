"""Figures about queues, from their ledgers, and a page that shows them."""
