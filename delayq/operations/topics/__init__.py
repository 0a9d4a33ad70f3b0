"""The operations of a topic and its groups, as generators that yield commands."""
