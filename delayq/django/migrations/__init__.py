"""Migrations of the app ``delayq.django``."""
