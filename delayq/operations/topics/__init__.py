"""What a topic and its groups do, as generators that yield commands."""
