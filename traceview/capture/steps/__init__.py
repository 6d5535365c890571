"""Recognizes the training steps of a script, and remembers what they are given and what they compute."""
