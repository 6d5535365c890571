"""Records a chosen range of training steps without editing the script that trains.

No module here imports TensorFlow or numpy when it is itself imported: the script imports them, so that what it sets
up before its own imports still takes effect.
"""
