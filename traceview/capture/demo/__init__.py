"""What does a run look like that is well, and one that is ill in a known way?

`training` is a training script like any other, `illnesses` what can be done to it, `injection` how much time
each illness cost, and `run` captures it.
"""
