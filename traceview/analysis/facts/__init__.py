"""Facts that several topics need; a topic imports facts, never another topic."""
