"""Records a chosen range of training steps without editing the script, which imports TensorFlow, JAX and numpy itself."""
