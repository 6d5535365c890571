"""How is a chosen range of training steps recorded, without editing the script that trains?

TensorFlow is imported by the script or by whoever calls the API, never at the start of a module here; numpy
neither, so that what a script sets up before its own imports still takes effect.
"""
